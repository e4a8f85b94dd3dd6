/* What `tigon bench` found, for people, for a README and for scripts. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "term.h"

static double rate_gbps(const bench_row *row) { return row->bytes_min / row->median * 1e-9; }

static json_t *real_or_null(double value) { return value > 0 ? json_real(value) : json_null(); }

char *bench_shape(char shape[BENCH_SHAPE], const bench_row *row) {
  char forms[FORMS_TEXT], attention[ATTENTION_TEXT];
  snprintf(shape, BENCH_SHAPE, "%" PRId64 "x%" PRId64 "%s%s", row->at.rows, row->at.cols,
           forms_text(forms, row->at.forms), attention_options_text(attention, &row->at.attention));
  return shape;
}

static json_t *past_json(const bench_past *past) {
  if (past->verdict == BENCH_UNKNOWN) return json_null();
  return json_pack("{s:s, s:f, s:f, s:f, s:f, s:o}", "verdict", bench_verdict_name(past->verdict), "change",
                   past->change, "median_ms", past->median * 1e3, "q20_ms", past->q20 * 1e3, "q80_ms", past->q80 * 1e3,
                   "floor_fraction", real_or_null(past->floor_fraction));
}

/* null where times are measured. */
static json_t *counted_json(const bench_row *row) {
  const tigon_model_counts *c = &row->counted;
  if (c->seconds <= 0) return json_null();
  return json_pack("{s:I, s:I, s:I, s:I, s:f, s:f}", "bytes_moved", (json_int_t)c->bytes_moved, "bytes_predicted",
                   (json_int_t)row->predicted, "onchip_bytes", (json_int_t)c->onchip_bytes, "grid", (json_int_t)c->grid,
                   "vector_share", c->vector_share, "dma_share", c->dma_share);
}

static json_t *row_json(const bench_row *row, bool against) {
  char shape[BENCH_SHAPE];
  json_t *object = json_pack(
      "{s:s, s:s, s:s, s:s, s:s, s:i, s:f, s:f, s:f, s:I, s:f, s:I}", "op", row->op, "mode", row->mode, "variant",
      row->variant, "dtype", tigon_dtype_name(row->dtype), "shape", bench_shape(shape, row), "threads", row->at.threads,
      "median_ms", row->median * 1e3, "q20_ms", row->q20 * 1e3, "q80_ms", row->q80 * 1e3, "bytes_min",
      (json_int_t)row->bytes_min, "gbps", rate_gbps(row), "extra_bytes", (json_int_t)row->extra_bytes);
  json_object_set_new(object, "floor_fraction", real_or_null(row->floor_fraction));
  json_object_set_new(object, "copy_gbps", real_or_null(row->copy_gbps));
  json_object_set_new(object, "read_gbps", real_or_null(row->read_gbps));
  json_object_set_new(object, "gflops", real_or_null(row->flops / row->median * 1e-9));
  json_object_set_new(object, "speedup", real_or_null(row->speedup));
  json_object_set_new(object, "disturbed", json_real(row->disturbed));
  json_object_set_new(object, "other", row->at.other ? json_integer(row->at.other) : json_null());
  json_object_set_new(object, "model", row->at.model ? json_string(row->at.model) : json_null());
  json_object_set_new(object, "counted", counted_json(row));
  json_object_set_new(object, "host_ms", real_or_null(row->host * 1e3));
  json_object_set_new(object, "peak_bytes", row->peak_bytes ? json_integer(row->peak_bytes) : json_null());
  if (against) json_object_set_new(object, "against", past_json(&row->past));
  return object;
}

static void print_json(const bench_result *result, const tigon_machine *machine) {
  json_t *rows = json_array(), *skipped = json_array();
  char shape[BENCH_SHAPE];
  for (int i = 0; i < result->count; ++i) {
    const bench_row *row = &result->rows[i];
    if (row->outcome == BENCH_MEASURED)
      json_array_append_new(rows, row_json(row, result->against != NULL));
    else
      json_array_append_new(skipped, json_pack("{s:s, s:s, s:s, s:s, s:s, s:b}", "op", row->op, "mode", row->mode,
                                               "dtype", tigon_dtype_name(row->dtype), "shape", bench_shape(shape, row),
                                               "reason", row->reason, "failed", row->outcome == BENCH_BROKEN));
  }
  json_t *root = json_pack("{s:{s:s, s:i, s:i, s:f, s:s, s:s, s:I, s:I, s:I}, s:{s:f, s:f}, s:b, s:o, s:o}", "machine",
                           "cpu", machine->model, "cores", machine->cores, "threads", result->threads, "load",
                           result->load, "variant", result->variant, "gemm", result->gemm, "l1d_bytes",
                           (json_int_t)machine->l1d_bytes, "l2_bytes", (json_int_t)machine->l2_bytes, "l3_bytes",
                           (json_int_t)machine->l3_bytes, "ceilings", "copy_gbps", result->copy_gbps, "read_gbps",
                           result->read_gbps, "hot", result->hot, "rows", rows, "skipped", skipped);
  json_object_set_new(root, "simulated", result->simulated ? json_string(result->simulated) : json_null());
  json_object_set_new(root, "device", result->device ? json_string(result->device) : json_null());
  if (result->against)
    json_object_set_new(root, "against",
                        json_pack("{s:s, s:i, s:i, s:i, s:i}", "file", result->against, "slower",
                                  result->verdicts[BENCH_SLOWER], "faster", result->verdicts[BENCH_FASTER], "same",
                                  result->verdicts[BENCH_SAME], "unknown", result->verdicts[BENCH_UNKNOWN]));
  cli_print_json(root);
}

static term_style floor_style(double fraction) {
  return fraction >= 0.85 ? TERM_GREEN : fraction > 0 && fraction < 0.6 ? TERM_YELLOW : TERM_PLAIN;
}

/* "8.00..14.2 ms": both in the second one's unit. */
static void add_range(term_table *table, double low, double high) {
  char first[TERM_NUMBER], second[TERM_NUMBER];
  term_seconds(second, high);
  term_digits(first, low * (high < 1e-3 ? 1e6 : high < 1 ? 1e3 : 1));
  term_cell(table, TERM_DIM, "%s..%s", first, second);
}

/* On a simulator: what the planner predicted, and what the model counted. */
static void add_counted(term_table *table, const bench_row *row) {
  const tigon_model_counts *c = &row->counted;
  char text[TERM_NUMBER];
  term_cell(table, TERM_DIM, "%" PRId64, row->predicted);
  term_cell(table, c->bytes_moved == row->predicted ? TERM_DIM : TERM_YELLOW, "%" PRId64, c->bytes_moved);
  term_cell(table, TERM_PLAIN, "%.2fx", (double)c->bytes_moved / row->bytes_min);
  term_cell(table, TERM_DIM, "%s", term_bytes(text, c->onchip_bytes));
  term_cell(table, TERM_DIM, "%lld", (long long)c->grid);
  term_cell(table, TERM_PLAIN, "%.0f %%", 100 * c->vector_share);
  term_cell(table, TERM_PLAIN, "%.0f %%", 100 * c->dma_share);
}

static void add_row(term_table *table, const bench_row *row, bool with_op, const bench_result *result) {
  const bench_axis axis = result->axis;
  char text[TERM_NUMBER], shape[BENCH_SHAPE];
  term_cell(table, TERM_BOLD, "%s", with_op ? row->op : "");
  term_cell(table, TERM_PLAIN, "%s", row->mode);
  term_cell(table, TERM_PLAIN, "%s", tigon_dtype_name(row->dtype));
  if (axis == BENCH_MODELS) term_cell(table, TERM_PLAIN, "%s", row->at.model);
  if (axis == BENCH_THREADS) term_cell(table, TERM_PLAIN, "%d", row->at.threads);
  term_cell(table, TERM_DIM, "%s", bench_shape(shape, row));
  term_cell(table, TERM_PLAIN, "%s", term_seconds(text, row->median));
  if (axis == BENCH_THREADS && row->speedup > 0) term_cell(table, TERM_BOLD, "%.2fx", row->speedup);
  if (axis == BENCH_THREADS && row->speedup <= 0) term_cell(table, TERM_DIM, "-");
  if (!result->simulated) add_range(table, row->q20, row->q80);
  if (result->overhead) return;
  if (row->flops > 0)
    term_cell(table, TERM_PLAIN, "%s GF/s", term_digits(text, row->flops / row->median * 1e-9));
  else
    term_cell(table, TERM_PLAIN, "%s GB/s", term_digits(text, rate_gbps(row)));
  if (row->floor_fraction > 0)
    term_cell(table, floor_style(row->floor_fraction), "%.0f %%", 100 * row->floor_fraction);
  else
    term_cell(table, TERM_DIM, "-");
  term_cell(table, TERM_DIM, "%s", row->extra_bytes ? term_bytes(text, (int64_t)row->extra_bytes) : "-");
  if (result->simulated)
    add_counted(table, row);
  else if (result->device)
    term_cell(table, TERM_DIM, "%s", row->host > 0 ? term_seconds(text, row->host) : "-");
  else
    term_cell(table, TERM_DIM, "%s", row->peak_bytes ? term_bytes(text, row->peak_bytes) : "-");
}

/* What ROWSxCOLS means, once for every operator shown where that is not plain. */
static void print_notes(const bench_result *result) {
  const char *last = "";
  for (int i = 0; i < result->count; ++i) {
    const bench_row *row = &result->rows[i];
    if (row->outcome != BENCH_MEASURED || strcmp(row->op, last) == 0) continue;
    last = row->op;
    const char *note = bench_case_find(row->op)->shape_note;
    if (note) printf("%s%s: %s%s\n", term_start(stdout, TERM_DIM), row->op, note, term_start(stdout, TERM_PLAIN));
  }
}

static void print_table(const bench_result *result, const tigon_machine *machine, bool markdown) {
  static const term_column all[] = {
      {"operator", false, 0}, {"mode", false, 0},  {"dtype", false, 1},   {"model", false, 0},    {"threads", true, 0},
      {"shape", false, 2},    {"median", true, 0}, {"speed-up", true, 0}, {"q20..q80", true, 4},  {"rate", true, 0},
      {"floor", true, 0},     {"extra", true, 3},  {"peak", true, 5},     {"predicted", true, 2}, {"counted", true, 2},
      {"moved", true, 0},     {"UB", true, 5},     {"grid", true, 4},     {"vector", true, 1},    {"DMA", true, 1},
  };
  enum { COLUMNS = sizeof all / sizeof *all, MODEL = 3, THREADS = 4, SPEEDUP = 7, RANGE = 8, RATE = 9, PEAK = 12 };
  static const term_column host = {"host", true, 5}; /* for a device, whose memory no system counts as ours */
  const bool simulated = result->simulated != NULL;
  term_column columns[COLUMNS];
  int shown = 0;
  for (int i = 0; i < (result->overhead ? RATE : COLUMNS); ++i)
    if ((i != MODEL || result->axis == BENCH_MODELS) && (simulated ? i != RANGE && i != PEAK : i <= PEAK) &&
        ((i != THREADS && i != SPEEDUP) || result->axis == BENCH_THREADS))
      columns[shown++] = i == PEAK && result->device ? host : all[i];
  char copy[TERM_NUMBER], read[TERM_NUMBER];
  if (result->simulated)
    printf("%s, %s: times by the simulator's model, not measured; its memory moves %s GB/s\n", result->simulated,
           result->variant, term_digits(copy, result->copy_gbps));
  else if (result->device && result->overhead)
    printf("%s, %s: what a call takes the host\n", result->device, result->variant);
  else if (result->device && result->probed)
    printf("%s, %s, times by its own clock: %scopy %s GB/s, read %s GB/s\n", result->device, result->variant,
           result->hot ? "cached, " : "", term_digits(copy, result->copy_gbps), term_digits(read, result->read_gbps));
  else if (result->device)
    printf("%s, %s: times by the device's clock; floors by the %s GB/s that the planner counts on\n", result->device,
           result->variant, term_digits(copy, result->copy_gbps));
  else
    printf("%s%s%s, %d thread%s, %s:\n%scopy %s GB/s, read %s GB/s\n", markdown ? "" : term_start(stdout, TERM_BOLD),
           machine->model, markdown ? "" : term_start(stdout, TERM_PLAIN), result->threads,
           result->threads == 1 ? "" : "s", result->variant, result->hot ? "cached, " : "",
           term_digits(copy, result->copy_gbps), term_digits(read, result->read_gbps));
  if (markdown) putchar('\n');

  term_table *table = term_table_new(columns, shown);
  const char *last = "";
  for (int i = 0; i < result->count; ++i) {
    const bench_row *row = &result->rows[i];
    if (row->outcome != BENCH_MEASURED) continue;
    add_row(table, row, markdown || strcmp(row->op, last) != 0, result);
    last = row->op;
  }
  if (markdown)
    term_table_print_markdown(table, stdout);
  else
    term_table_print(table, stdout);
  if (!markdown && !result->overhead && result->axis != BENCH_MODELS) print_notes(result);
}

/* One line for each failure, and one for each reason to skip with all operators that share it. */
static void print_reasons(const bench_result *result) {
  for (int i = 0; i < result->count; ++i) {
    const bench_row *row = &result->rows[i];
    if (row->outcome == BENCH_BROKEN)
      fprintf(stderr, "%s %s %s failed: %s\n", row->op, row->mode, tigon_dtype_name(row->dtype), row->reason);
    bool first = row->outcome == BENCH_SKIPPED;
    for (int j = 0; j < i && first; ++j)
      first = result->rows[j].outcome != BENCH_SKIPPED || strcmp(result->rows[j].reason, row->reason) != 0;
    if (!first) continue;
    fprintf(stderr, "skipped, %s:", row->reason);
    const char *last = "";
    for (int j = i; j < result->count; ++j) {
      const bench_row *other = &result->rows[j];
      if (other->outcome != BENCH_SKIPPED || strcmp(other->reason, row->reason) != 0 || other->op == last) continue;
      fprintf(stderr, " %s", last = other->op);
    }
    fputc('\n', stderr);
  }
}

void bench_print(const bench_result *result, bench_format format) {
  tigon_machine machine;
  tigon_machine_read(&machine);
  if (format == BENCH_JSON)
    print_json(result, &machine);
  else if (format == BENCH_CSV)
    bench_print_csv(result, &machine);
  else
    print_table(result, &machine, format == BENCH_MARKDOWN);
  const bool for_people = format == BENCH_TABLE || format == BENCH_MARKDOWN;
  if (format == BENCH_MARKDOWN && result->against) putchar('\n');
  if (result->against) bench_print_changes(result, for_people ? stdout : stderr);
  fflush(stdout);
  print_reasons(result);
  if (result->simulated || result->device) return;
  double disturbed = 0;
  int measured = 0;
  for (int i = 0; i < result->count; ++i)
    if (result->rows[i].outcome == BENCH_MEASURED) disturbed += result->rows[i].disturbed, ++measured;
  if (disturbed > 0.5 * measured) /* an idle kernel's own threads reach a third */
    fprintf(stderr, "other programs took a core in %.0f %% of the samples: keep no figure of this run\n",
            100 * disturbed / measured);
  else if (result->load > 0.5 * machine.cores)
    fprintf(stderr, "the machine was busy before this run (load %.1f on %d cores): floors are fairer than times\n",
            result->load, machine.cores);
}
