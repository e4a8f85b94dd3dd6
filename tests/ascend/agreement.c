/* `tigon plan` says what a call launches. The test runs every operator, mode and size that `tigon bench` knows, on every part.
 * The printed plan is the one that the call's own launcher asked for, and the call launches as many blocks.
 * ctest: slow timeout=1200 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ascend/plan/plans.h"
#include "check/cases.h"
#include "core/context.h"

/* ---- what is launched ---- */

typedef struct launched {
  int64_t most_blocks;
  int count;
} launched;

static void record(void *to, const tigon_launch *launch) {
  launched *l = to;
  if (launch->grid > l->most_blocks) l->most_blocks = launch->grid;
  ++l->count;
}

/* ---- what is printed ---- */

/* The number of a key of the JSON. */
static int64_t number(const char *json, const char *key) {
  char quoted[32];
  snprintf(quoted, sizeof quoted, "\"%s\": ", key);
  const char *at = strstr(json, quoted);
  if (!at) fail_msg("%s is not in %s", key, json);
  return at ? strtoll(at + strlen(quoted), NULL, 10) : 0;
}

static void expect_number(const char *call, const char *json, const char *key, int64_t value) {
  if (number(json, key) != value)
    fail_msg("%s: %s is %lld, launched with %lld", call, key, (long long)number(json, key), (long long)value);
}

static void expect_letter(const char *call, const char *json, const char *key, tigon_plan_case value) {
  char text[32];
  snprintf(text, sizeof text, "\"%s\": \"%c\"", key, tigon_plan_case_letter(value));
  if (!strstr(json, text)) fail_msg("%s: not %s", call, text);
}

/* Runs a command; its exit status. */
static int run(const char *command, char *output, size_t size) {
  FILE *pipe = popen(command, "r"); /* NOLINT(cert-env33-c) */
  assert_non_null(pipe);
  const size_t length = fread(output, 1, size - 1, pipe);
  output[length] = 0;
  return pclose(pipe);
}

/* ---- the comparison ---- */

static void command_of(const bench_data *data, bench_mode mode, const char *part, const bench_point *at, char *text,
                       size_t size) {
  const int64_t *dims = data->memory.dims;
  int64_t rows = at->rows, cols = at->cols;
  char more[128] = "";
  if (strcmp(data->chosen->op, "group_norm") == 0) { /* batch, channels, run, groups */
    rows = dims[0] * dims[3], cols = dims[1] / dims[3] * dims[2];
    snprintf(more, sizeof more, " --groups %lld --run %lld", (long long)dims[3], (long long)dims[2]);
  } else if (strcmp(data->chosen->op, "modulated_rms_norm") == 0) {
    const tigon_modulated_rms_norm_fwd_args *fwd = data->mode[BENCH_FWD].args;
    if (fwd->scale.shape[0] > 1) snprintf(more, sizeof more, " --groups %lld", (long long)fwd->scale.shape[0]);
  } else if (strcmp(data->chosen->op, "rope") == 0) { /* batch, tokens, heads of q and k, columns of a head */
    snprintf(more, sizeof more, " --unit %lld --keys %lld", (long long)dims[4], (long long)dims[3]);
  } else if (strcmp(data->chosen->op, "embedding") == 0 && mode == BENCH_BWD) {
    snprintf(more, sizeof more, " --table %lld", (long long)dims[2]);
  } else if (mode == BENCH_MERGE) {
    const tigon_vocab_parallel_cross_entropy_merge_args *merge = data->mode[mode].args;
    cols = merge->stats.shape[0];
  }
  snprintf(text, size, "\"${TIGON:-tigon}\" plan %s --mode %s --dtype %s --shape %lldx%lld --device %s%s --json",
           data->chosen->op, bench_mode_name(mode), tigon_dtype_name(data->memory.dtype), (long long)rows,
           (long long)cols, part, more);
}

/* The only plan that the last call asked for. */
static const tigon_plan *asked(const char *call, const ascend_plans *plans) {
  if (plans->count != 1) fail_msg("%s: %d plans", call, plans->count);
  int i = 0;
  while (!plans->of[i].call.op) ++i;
  return &plans->of[i].plan;
}

static void compare(tigon_context *context, const bench_data *data, bench_mode mode, const char *part,
                    const bench_point *at) {
  char command[512], json[4096];
  ascend_plans *plans = context->queue.backend->plans(&context->queue);
  launched l = {0};
  command_of(data, mode, part, at, command, sizeof command);
  memset(plans, 0, sizeof *plans);
  context->queue.record_to = &l;
  if (bench_call(data, mode) != TIGON_OK) fail_msg("%s: %s", command, tigon_last_error(context));
  if (run(command, json, sizeof json) != 0) fail_msg("%s failed: %s", command, json);
  const tigon_plan *plan = asked(command, plans);
  expect_letter(command, json, "case", plan->chosen);
  expect_letter(command, json, "cut", plan->cut);
  expect_number(command, json, "grid", plan->grid);
  expect_number(command, json, "tasks", plan->tasks);
  expect_number(command, json, "splits", plan->splits);
  expect_number(command, json, "rows_per_tile", plan->rows_per_tile);
  expect_number(command, json, "cols_per_tile", plan->cols_per_tile);
  expect_number(command, json, "onchip_bytes", plan->onchip_bytes);
  expect_number(command, json, "bytes_moved", plan->bytes_moved);
  expect_number(command, json, "bytes_extra", plan->bytes_extra);
  expect_number(command, json, "slabs", plan->slabs);
  assert_true(l.count >= 1);
  if (l.most_blocks != plan->grid)
    fail_msg("%s: %lld blocks planned, %lld launched", command, (long long)plan->grid, (long long)l.most_blocks);
}

/* The op's own size and those of models. */
static int points_of(const bench_case *chosen, tigon_dtype dtype, bench_point points[32]) {
  int count = 1;
  points[0] = (bench_point){.rows = dtype == TIGON_F32 ? chosen->rows_f32 : chosen->rows_16bit, .cols = chosen->cols};
  for (int i = 0; bench_model_names()[i] && count < 32; ++i) {
    points[count] = (bench_point){0};
    if (bench_model_point(chosen, i, &points[count])) ++count;
  }
  for (int i = 0; i < count; ++i) points[i].other = bench_other(chosen, &points[i]);
  return count;
}

/* Is there a plan for the operator? Some are borrowed or composites. */
static bool is_planned(const char *op) {
  const char *name, *entry;
  for (int i = 0; tigon_footprint_at(i, &name, &entry); ++i)
    if (strcmp(name, op) == 0) return true;
  return false;
}

static int compare_all(tigon_context *context, const char *part, const bench_case *chosen, tigon_dtype dtype) {
  bench_point points[32];
  int compared = 0;
  const int count = points_of(chosen, dtype, points);
  for (int i = 0; i < count; ++i) {
    bench_data data;
    assert_int_equal(bench_data_open(&data, chosen, context, dtype, &points[i], SIZE_MAX), TIGON_OK);
    for (bench_mode mode = 0; mode < BENCH_MODES; ++mode) {
      const int entry = data.mode[mode].entry;
      if (entry < 0 || mode == BENCH_FULL) continue;
      if (!(tigon_entry_dtypes(context->kernels, entry) & TIGON_BIT(dtype))) continue;
      compare(context, &data, mode, part, &points[i]);
      ++compared;
    }
    bench_data_close(&data);
  }
  return compared;
}

static void every_call_is_what_was_printed(void **state) {
  (void)state;
  int compared = 0;
  const char *last = "";
  const tigon_backend *simulator = tigon_backend_find("ascend-sim");
  const char *reason;
  const int parts = simulator->count(&reason);
  int compared_parts = 0;
  for (int part = 0; part < parts; ++part) {
    if (!tigon_device_desc_find(simulator->name_of(part))) continue; /* no part of the planner's table */
    ++compared_parts;
    char name[32];
    launched l;
    tigon_context *context;
    snprintf(name, sizeof name, "ascend-sim:%s", simulator->name_of(part));
    assert_int_equal(tigon_context_create(&(tigon_context_desc){.device = name}, &context), TIGON_OK);
    context->queue.record = record;
    context->queue.record_to = &l;
    for (int e = 0; tigon_entry_at(e); ++e) {
      const char *op = tigon_entry_at(e)->op;
      if (strcmp(op, last) == 0 || !is_planned(op)) continue;
      last = op;
      for (tigon_dtype dtype = TIGON_F32; dtype <= TIGON_BF16; dtype += TIGON_BF16 - TIGON_F32)
        compared += compare_all(context, simulator->name_of(part), bench_case_find(op), dtype);
    }
    tigon_context_destroy(context);
  }
  assert_true(compared_parts >= 6 && compared > 100 * compared_parts);
  print_message("%d calls\n", compared);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_call_is_what_was_printed)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
