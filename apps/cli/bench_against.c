/* `tigon bench --against`: this run's rows beside those of an earlier one. */
#include <string.h>

#include "bench.h"
#include "term.h"

enum { NOISE_PERCENT = 5 };

static void say_other(const char *command, const char *path, const char *what, const char *name) {
  char text[512];
  snprintf(text, sizeof text, "%s was measured on another %s (%s)", path, what, name);
  cli_say(command, text);
}

json_t *bench_past_read(const char *command, const char *path, bool hot, const char *device) {
  json_error_t error;
  json_t *past = json_load_file(path, 0, &error);
  if (!past && error.line <= 0) cli_trouble(command, "--against: %s", error.text);
  if (!past) cli_trouble(command, "--against: %s, line %d: %s", path, error.line, error.text);
  if (!json_is_array(json_object_get(past, "rows")))
    cli_trouble(command, "--against: %s is not what `tigon bench --json' prints", path);
  if (json_is_true(json_object_get(past, "hot")) != hot)
    cli_trouble(command, "--against: %s was measured %s --hot", path, hot ? "without" : "with");
  tigon_machine machine;
  tigon_machine_read(&machine);
  const char *cpu = json_string_value(json_object_get(json_object_get(past, "machine"), "cpu"));
  const char *other = json_string_value(json_object_get(past, "device"));
  if (device || other) {
    if (!device || !other || strcmp(device, other) != 0) say_other(command, path, "device", other ? other : "the host");
  } else if (cpu && strcmp(cpu, machine.model) != 0) {
    say_other(command, path, "machine", cpu);
  }
  return past;
}

static bool same_text(const json_t *row, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(row, key));
  return value && text ? strcmp(value, text) == 0 : value == text;
}

static bool same_row(const json_t *past, const bench_row *row) {
  char shape[BENCH_SHAPE];
  return same_text(past, "op", row->op) && same_text(past, "mode", row->mode) &&
         same_text(past, "dtype", tigon_dtype_name(row->dtype)) && same_text(past, "shape", bench_shape(shape, row)) &&
         same_text(past, "model", row->at.model) &&
         json_integer_value(json_object_get(past, "threads")) == row->at.threads &&
         json_integer_value(json_object_get(past, "other")) == row->at.other;
}

static double number(const json_t *row, const char *key) { return json_number_value(json_object_get(row, key)); }

int bench_past_find(const json_t *past, bench_row *rows, int count) {
  int found = 0;
  size_t j;
  const json_t *one;
  for (int i = 0; i < count; ++i) json_array_foreach(json_object_get(past, "rows"), j, one) {
      if (!same_row(one, &rows[i]) || number(one, "median_ms") <= 0) continue;
      rows[i].past = (bench_past){.verdict = BENCH_SAME,
                                  .median = number(one, "median_ms") * 1e-3,
                                  .q20 = number(one, "q20_ms") * 1e-3,
                                  .q80 = number(one, "q80_ms") * 1e-3,
                                  .floor_fraction = number(one, "floor_fraction")};
      ++found;
      break;
    }
  return found;
}

bench_verdict bench_past_judge(bench_row *row) {
  bench_past *past = &row->past;
  if (past->verdict == BENCH_UNKNOWN || row->outcome != BENCH_MEASURED) return past->verdict = BENCH_UNKNOWN;
  const bool floors = past->floor_fraction > 0 && row->floor_fraction > 0;
  past->change = (floors ? past->floor_fraction / row->floor_fraction : row->median / past->median) - 1;
  if (row->q20 > past->q80 && past->change > 0.01 * NOISE_PERCENT) past->verdict = BENCH_SLOWER;
  if (row->q80 < past->q20 && past->change < -0.01 * NOISE_PERCENT) past->verdict = BENCH_FASTER;
  return past->verdict;
}

const char *bench_verdict_name(bench_verdict verdict) {
  static const char *const names[] = {"unknown", "same", "slower", "faster"};
  return names[verdict];
}

static void print_change(FILE *file, const bench_row *row) {
  char shape[BENCH_SHAPE], now[TERM_NUMBER], before[TERM_NUMBER];
  const bool slower = row->past.verdict == BENCH_SLOWER;
  fprintf(file, "%s%s%s: %s %s %s %s, ", term_start(file, slower ? TERM_RED : TERM_GREEN),
          bench_verdict_name(row->past.verdict), term_start(file, TERM_PLAIN), row->op, row->mode,
          tigon_dtype_name(row->dtype), bench_shape(shape, row));
  fprintf(file, "%d thread%s: %s, was %s", row->at.threads, row->at.threads == 1 ? "" : "s",
          term_seconds(now, row->median), term_seconds(before, row->past.median));
  if (row->floor_fraction > 0 && row->past.floor_fraction > 0)
    fprintf(file, "; %.0f %% of the floor, was %.0f %%", 100 * row->floor_fraction, 100 * row->past.floor_fraction);
  fputc('\n', file);
}

void bench_print_changes(const bench_result *result, FILE *file) {
  for (int i = 0; i < result->count; ++i) {
    const bench_verdict verdict = result->rows[i].past.verdict;
    if (verdict == BENCH_SLOWER || verdict == BENCH_FASTER) print_change(file, &result->rows[i]);
  }
  fprintf(file, "against %s: %d slower, %d faster, %d the same within the noise, %d not in it\n", result->against,
          result->verdicts[BENCH_SLOWER], result->verdicts[BENCH_FASTER], result->verdicts[BENCH_SAME],
          result->verdicts[BENCH_UNKNOWN]);
}
