/* What tests of traffic share: parts of every size, and the simulator's counts beside a plan's. */
#ifndef TIGON_TESTS_ASCEND_TRAFFIC_H
#define TIGON_TESTS_ASCEND_TRAFFIC_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <tigon/tigon.h>

#include "ascend/ascend.h"
#include "core/context.h"

static const char *const parts[] = {"ascend-sim:910B4", "ascend-sim:910B1", "ascend-sim:910_93", "ascend-sim:tiny"};
enum { PARTS = sizeof parts / sizeof *parts };

static inline void *zeros(size_t bytes) {
  void *memory = calloc(bytes, 1);
  assert_non_null(memory);
  return memory;
}

static inline void succeeds(const tigon_context *context, tigon_status status) {
  if (status != TIGON_OK) fail_msg("%s", tigon_last_error(context));
}

static inline tigon_context *open_part(int part) {
  tigon_context *context;
  if (tigon_context_create(&(tigon_context_desc){.device = parts[part]}, &context) != TIGON_OK)
    fail_msg("%s", tigon_last_error(NULL));
  return context;
}

static inline const tigon_sim_counters *counters(const tigon_context *context) {
  return tigon_sim_counted(ascend_of(&context->queue)->sim);
}

static inline void ask(tigon_context *context, const char *op, const char *entry, tigon_dtype dtype, int64_t rows,
                       int64_t cols, tigon_plan *plan) {
  assert_int_equal(ascend_plan_rows(&context->queue, op, entry, dtype, rows, cols, plan), TIGON_OK);
  tigon_sim_reset(ascend_of(&context->queue)->sim);
}

static inline ascend_plans *plans_of(const tigon_context *context) { return &ascend_of(&context->queue)->plans; }

/* Starts a call whose own plan is to be held to what is counted. */
static inline void begin(tigon_context *context) {
  ascend_plans *plans = plans_of(context);
  memset(plans->of, 0, sizeof plans->of);
  plans->count = 0;
  plans->predicted = 0;
  tigon_sim_reset(ascend_of(&context->queue)->sim);
}

/* That call's plan, whose bytes are those that `tigon bench` shows as predicted. */
static inline const tigon_plan *only_plan(const tigon_context *context) {
  const ascend_plans *plans = plans_of(context);
  const ascend_planned *place = plans->of;
  assert_int_equal(plans->count, 1);
  while (!place->call.op) ++place;
  assert_int_equal(plans->predicted, place->plan.bytes_moved + place->plan.bytes_extra);
  return &place->plan;
}

static inline void expect_bytes(const tigon_context *context, const tigon_plan *plan, const char *what) {
  const tigon_sim_counters *counted = counters(context);
  const int64_t moved = counted->bytes_loaded + counted->bytes_stored, bytes = plan->bytes_moved + plan->bytes_extra;
  if (moved != bytes)
    fail_msg("%s %lldx%lld, case %c: moved %lld bytes, predicted %lld (%s)", what, (long long)plan->rows,
             (long long)plan->cols, tigon_plan_case_letter(plan->cut), (long long)moved, (long long)bytes,
             plan->reason);
}

#endif
