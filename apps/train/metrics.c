#include "metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "json_memory.h"

#define AT(field) offsetof(train_metrics_row, field)

static const struct {
  const char *name, *format;
  size_t offset;
} columns[] = {
    {"step", "%.0f", AT(step)},
    {"tokens", "%.0f", AT(tokens)},
    {"loss", "%.9g", AT(loss)},
    {"heldout_loss", "%.9g", AT(heldout_loss)},
    {"lr", "%.9g", AT(lr)},
    {"gradient_norm", "%.9g", AT(gradient_norm)},
    {"tokens_per_s", "%.9g", AT(tokens_per_s)},
    {"seconds", "%.3f", AT(seconds)},
    {"peak_bytes", "%.0f", AT(peak_bytes)},
    {"mfu", "%.6g", AT(mfu)},
    {"loss_scale", "%.17g", AT(loss_scale)},
    {"skipped_steps", "%.0f", AT(skipped_steps)},
};
enum { COLUMNS = sizeof columns / sizeof *columns, LINE = 1024 };

static double *cell(train_metrics_row *row, int column) {
  return (double *)(void *)((char *)row + columns[column].offset);
}

/* ---- lines ---- */

static size_t header(char line[LINE]) {
  size_t used = 0;
  for (int i = 0; i < COLUMNS; ++i)
    used += (size_t)snprintf(line + used, LINE - used, "%s%s", i ? "," : "", columns[i].name);
  line[used++] = '\n';
  return used;
}

static size_t format(const train_metrics_row *row, bool json, char line[LINE]) {
  train_metrics_row copy = *row;
  size_t used = 0;
  for (int i = 0; i < COLUMNS; ++i) {
    char number[64] = "";
    const double value = *cell(&copy, i);
    if (isfinite(value))
      snprintf(number, sizeof number, columns[i].format, value); /* NOLINT: the formats of the table */
    else if (json)
      strcpy(number, "null");
    used += json ? (size_t)snprintf(line + used, LINE - used, "%s\"%s\":%s", i ? "," : "{", columns[i].name, number)
                 : (size_t)snprintf(line + used, LINE - used, "%s%s", i ? "," : "", number);
  }
  if (json) line[used++] = '}';
  line[used++] = '\n';
  return used;
}

static bool parse(const char *line, train_metrics_row *row) {
  train_json_begin();
  json_t *object = train_json_whole(json_loads(line, 0, NULL));
  for (int i = 0; i < COLUMNS; ++i) {
    const json_t *value = json_object_get(object, columns[i].name);
    *cell(row, i) = json_is_number(value) ? json_number_value(value) : NAN;
  }
  json_decref(object);
  return row->step >= 1;
}

/* ---- opening ---- */

/* Whether the run has this step behind it. A file of another run has other losses. */
static bool belongs(const train_metrics_row *row, double last_step, const train_history *h) {
  return row->step > last_step && row->step <= (double)h->steps && (float)row->loss == h->loss[(int64_t)row->step - 1];
}

static bool append(train_file *file, train_metrics_file *m, const char *line, size_t count, train_error *error) {
  m->begin = m->end;
  m->end += (int64_t)count;
  return train_file_append(file, line, count, error);
}

static bool no_memory(const train_metrics *m, train_error *error) {
  return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the lines of %s", m->jsonl.path);
}

/* Copies what belongs. Half a line is no JSON, and is left out. */
static bool keep(train_metrics *m, FILE *from, train_file *jsonl, train_file *csv, const train_history *h,
                 train_error *error) {
  char *line = NULL, text[LINE];
  size_t room = 0;
  bool good = true;
  while (good && getline(&line, &room, from) > 0) {
    train_metrics_row row;
    const bool is_row = parse(line, &row);
    if (train_json_lacked()) break;
    if (!is_row || !belongs(&row, m->last.step, h)) continue;
    m->last = row;
    good = append(jsonl, &m->jsonl, text, format(&row, true, text), error);
    if (!good)
      train_file_discard(csv);
    else if (!(good = append(csv, &m->csv, text, format(&row, false, text), error)))
      train_file_discard(jsonl);
  }
  free(line);
  if (good && !feof(from)) {
    train_file_discard(jsonl);
    train_file_discard(csv);
    return no_memory(m, error);
  }
  return good;
}

static bool finish_both(train_file *jsonl, train_file *csv, train_error *error) {
  if (!train_file_finish(jsonl, error)) {
    train_file_discard(csv);
    return false;
  }
  return train_file_finish(csv, error) || (unlink(jsonl->temporary), false);
}

static bool open_file(train_metrics_file *m, train_error *error) {
  m->descriptor = open(m->path, O_WRONLY | O_CLOEXEC);
  return m->descriptor >= 0 || train_fail(error, TRAIN_EXIT_TROUBLE, "cannot write %s: %s", m->path, strerror(errno));
}

bool train_metrics_open(train_metrics *m, const char *folder, const char *from, const train_history *h,
                        train_error *error) {
  char before[TRAIN_PATH], line[LINE];
  train_file jsonl, csv;
  *m = (train_metrics){.jsonl.descriptor = -1, .csv.descriptor = -1};
  if (!train_path_join(folder, "metrics.jsonl", m->jsonl.path, error) ||
      !train_path_join(folder, "metrics.csv", m->csv.path, error) ||
      (from && !train_path_join(from, "metrics.jsonl", before, error)) ||
      !train_file_create(m->jsonl.path, &jsonl, error))
    return false;
  if (!train_file_create(m->csv.path, &csv, error) || !append(&csv, &m->csv, line, header(line), error)) {
    train_file_discard(&jsonl);
    return false;
  }
  FILE *rows = from ? fopen(before, "re") : NULL;
  if (from && !rows && errno == ENOMEM) {
    train_file_discard(&jsonl);
    train_file_discard(&csv);
    return no_memory(m, error);
  }
  const bool kept = !rows || keep(m, rows, &jsonl, &csv, h, error);
  if (rows) fclose(rows);
  if (!kept || !finish_both(&jsonl, &csv, error)) return false;
  const bool good = train_file_commit(m->jsonl.path, error) && train_file_commit(m->csv.path, error) &&
                    open_file(&m->jsonl, error) && open_file(&m->csv, error);
  if (!good) train_metrics_close(m);
  return good;
}

void train_metrics_close(train_metrics *m) {
  if (m->jsonl.descriptor >= 0) close(m->jsonl.descriptor);
  if (m->csv.descriptor >= 0) close(m->csv.descriptor);
  m->jsonl.descriptor = m->csv.descriptor = -1;
}

/* ---- adding ---- */

/* What does not fit on the disk is taken back, so that the file still ends with a whole line. */
static bool put(train_metrics_file *m, const char *line, size_t count, bool replaces, train_error *error) {
  if (!replaces) m->begin = m->end;
  size_t done = 0;
  int number = 0;
  while (done < count && number == 0) {
    const ssize_t written = pwrite(m->descriptor, line + done, count - done, (off_t)(m->begin + (int64_t)done));
    if (written > 0)
      done += (size_t)written;
    else if (errno != EINTR)
      number = written < 0 ? errno : ENOSPC;
  }
  const bool good = number == 0;
  m->end = m->begin + (good ? (int64_t)count : 0);
  if ((!good || replaces) && ftruncate(m->descriptor, (off_t)m->end) != 0)
    return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot cut %s: %s", m->path, strerror(errno));
  return good || train_fail(error, TRAIN_EXIT_TROUBLE, "cannot write %s: %s", m->path, strerror(number));
}

bool train_metrics_put(train_metrics *m, const train_metrics_row *row, train_error *error) {
  char line[LINE];
  const bool replaces = row->step == m->last.step;
  m->last = *row;
  const bool jsonl = put(&m->jsonl, line, format(row, true, line), replaces, error);
  return put(&m->csv, line, format(row, false, line), replaces, error) && jsonl;
}
