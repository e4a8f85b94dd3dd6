#include "run_json.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "json_memory.h"
#include "tokenizer.h"

/* ---- writing ---- */

static json_t *value_of(const train_options *o, const train_option_row *row) {
  const char *field = (const char *)o + row->offset;
  const char *text;
  switch (row->kind) {
    case TRAIN_WHOLE: return json_integer((json_int_t) * (const int64_t *)(const void *)field);
    case TRAIN_REAL: return json_real(*(const double *)(const void *)field);
    case TRAIN_FLAG: return json_boolean(*(const bool *)field);
    default: text = *(const char *const *)(const void *)field; return text ? json_string(text) : json_null();
  }
}

/* The fewest digits with which every number is read back as it is. */
static int digits(const train_options *o) {
  int most = 15;
  for (int i = 0; i < train_option_count; ++i) {
    char text[64];
    const train_option_row *row = &train_option_rows[i];
    if (!row->name || row->kind != TRAIN_REAL) continue;
    const double value = *(const double *)(const void *)((const char *)o + row->offset);
    for (; most < 17; ++most) {
      snprintf(text, sizeof text, "%.*g", most, value);
      if (strtod(text, NULL) == value) break;
    }
  }
  return most;
}

bool train_run_json_write(const char *folder, const train_options *o, const char **lacks, train_error *error) {
  char path[TRAIN_PATH];
  *lacks = NULL;
  if (!train_path_join(folder, "run.json", path, error)) return false;
  train_json_begin();
  json_t *object = json_object();
  for (int i = 0; i < train_option_count; ++i)
    if (train_option_rows[i].name && train_option_rows[i].use != TRAIN_USE_HERE &&
        json_object_set_new(object, train_option_rows[i].name, value_of(o, &train_option_rows[i])) != 0)
      *lacks = train_option_rows[i].name;
  char *text = train_json_text(object, JSON_INDENT(2) | JSON_REAL_PRECISION(digits(o)));
  json_decref(object);
  if (!text) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", path);
  train_file file;
  const bool good = train_file_create(path, &file, error) && train_file_append(&file, text, strlen(text), error) &&
                    train_file_append(&file, "\n", 1, error) && train_file_finish(&file, error) &&
                    train_file_commit(path, error);
  free(text);
  return good;
}

/* ---- reading ---- */

/* Sets one option. Texts are the JSON's own. */
static bool set(train_options *o, int index, const json_t *value, const char *shown) {
  const train_option_row *row = &train_option_rows[index];
  train_error unused;
  const char *text = NULL;
  switch (row->kind) {
    case TRAIN_WHOLE: text = json_is_integer(value) ? shown : NULL; break;
    case TRAIN_REAL: text = json_is_number(value) ? shown : NULL; break;
    case TRAIN_FLAG: text = json_is_boolean(value) ? (json_is_true(value) ? "1" : "0") : NULL; break;
    case TRAIN_CHOICE:
    case TRAIN_TEXT:
      text = json_string_value(value);
      if (text && !*text && row->kind == TRAIN_TEXT && strcmp(row->name, "prompt") != 0) return false;
      if (!json_is_null(value)) break;
      if (!row->value) *(const char **)(void *)((char *)o + row->offset) = NULL; /* else the default stays */
      return row->kind == TRAIN_TEXT;
  }
  return text && train_option_set(o, index, text, "", &unused);
}

static bool read_option(const char *path, const char *name, const json_t *value, train_options *o, train_error *error) {
  const int index = train_option_find(name);
  const bool config = strcmp(name, "config") == 0;
  if (index < 0 || config)
    return train_fail(error, TRAIN_EXIT_USAGE, "%s: \"%.80s\" is no option of `tigon train'%s", path, name,
                      config ? " that a file may have" : "");
  char origin[TRAIN_PATH + 8];
  train_options all = *o; /* what the command line has must still be right in the file */
  char *shown = train_json_text(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
  if (!shown) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", path);
  snprintf(origin, sizeof origin, "%s: ", path);
  const bool good = set(&all, index, value, shown) || train_option_refuse(index, origin, shown, error);
  const bool goes_on = o->resume && (strcmp(name, "init-from") == 0 || /* --resume's folder holds both */
                                     (strcmp(name, "tokenizer") == 0 && train_tokenizer_exists(o->resume)));
  if (good && !(o->given >> index & 1) && !goes_on) {
    all.given |= UINT64_C(1) << index;
    *o = all;
  }
  free(shown);
  return good;
}

bool train_run_json_read(const char *path, train_options *o, json_t **kept, train_error *error) {
  json_error_t wrong;
  const char *name;
  json_t *value;
  FILE *file = fopen(path, "re");
  *kept = NULL;
  if (!file) return train_fail(error, TRAIN_EXIT_TROUBLE, "cannot open %s: %s", path, strerror(errno));
  train_json_begin();
  json_t *object = train_json_whole(json_loadf(file, JSON_REJECT_DUPLICATES, &wrong));
  fclose(file);
  if (!object && train_json_lacked()) return train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for %s", path);
  if (!object)
    return train_fail(error, TRAIN_EXIT_USAGE, "%s is broken JSON in line %d: %.160s", path, wrong.line, wrong.text);
  bool good = json_is_object(object) ||
              train_fail(error, TRAIN_EXIT_USAGE, "%s must be an object of options, as run.json is", path);
  json_object_foreach(object, name, value) good = good && read_option(path, name, value, o, error);
  *kept = object;
  return good;
}
