/* A device remembers plans: each call gets the plan that the planner makes for it, whatever was asked before. */
#include <inttypes.h>

#include "../api/api.h"
#include "ascend/ascend.h"
#include "core/context.h"

/* What a plan says, apart from the bytes between its fields. */
typedef struct text {
  char text[512];
} text;

static text text_of(const tigon_plan *plan) {
  text t;
  snprintf(t.text, sizeof t.text,
           "%c%c %" PRId64 "x%" PRId64 " groups %" PRId64 " tasks %" PRId64 "x%" PRId64 " tiles %" PRId64 "x%" PRId64
           " on chip %" PRId64 " workspace %" PRId64 " moved %" PRId64 "+%" PRId64 " %g us: %s",
           tigon_plan_case_letter(plan->chosen), tigon_plan_case_letter(plan->cut), plan->rows, plan->cols,
           plan->groups, plan->row_tasks, plan->splits, plan->rows_per_tile, plan->cols_per_tile, plan->onchip_bytes,
           plan->workspace_bytes, plan->bytes_moved, plan->bytes_extra, plan->predicted_us, plan->reason);
  return t;
}

static ascend_plans *plans_of(const tigon_context *context) { return &ascend_of(&context->queue)->plans; }

static text made(const tigon_context *context, const tigon_plan_request *call) {
  tigon_footprint footprint;
  assert_true(tigon_footprint_find(call->op, call->entry, call->dtype, &footprint));
  const tigon_call_words *words = &call->words;
  footprint.f32_temporaries += words->temporaries;
  if (words->table_bytes) footprint.row_table_bytes = words->table_bytes;
  if (words->given) footprint.row_scalars_in = words->in, footprint.row_scalars_out = words->out;
  const tigon_plan_request request = {.footprint = &footprint,
                                      .device = &ascend_of(&context->queue)->soc->device,
                                      .rows = call->rows,
                                      .cols = call->cols,
                                      .groups = call->groups,
                                      .run = call->run,
                                      .out_rows = call->out_rows,
                                      .col_unit = call->col_unit,
                                      .table_cols = call->table_cols,
                                      .force = plans_of(context)->force};
  tigon_plan plan;
  assert_int_equal(tigon_plan_make(&request, &plan), TIGON_OK);
  return text_of(&plan);
}

static void expect_plan(tigon_context *context, const tigon_plan_request *call) {
  tigon_plan plan;
  plans_of(context)->planned = 0;
  assert_int_equal(ascend_plan(&context->queue, call, &plan), TIGON_OK);
  assert_string_equal(text_of(&plan).text, made(context, call).text);
  assert_true(plans_of(context)->planned & TIGON_CASE_BIT(plan.chosen));
}

static void each_field_has_a_plan_of_its_own(void **state) {
  tigon_context *context = *state;
  const tigon_plan_request calls[] = {
      {.op = "softmax", .entry = "fwd", .dtype = TIGON_F32, .rows = 64, .cols = 65536},
      {.op = "rms_norm", .entry = "fwd", .dtype = TIGON_F32, .rows = 64, .cols = 65536},
      {.op = "softmax", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 65536},
      {.op = "softmax", .entry = "fwd", .dtype = TIGON_BF16, .rows = 64, .cols = 65536},
      {.op = "softmax", .entry = "fwd", .dtype = TIGON_F32, .rows = 64, .cols = 65536, .words = {.temporaries = 2}},
      {.op = "softmax", .entry = "fwd", .dtype = TIGON_F32, .rows = 128, .cols = 65536},
      {.op = "softmax", .entry = "fwd", .dtype = TIGON_F32, .rows = 64, .cols = 32768},
      {.op = "group_norm", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 65536, .groups = 8, .run = 64},
      {.op = "group_norm", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 65536, .groups = 16, .run = 64},
      {.op = "group_norm", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 65536, .groups = 8, .run = 128},
      {.op = "modulated_rms_norm", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 4096},
      {.op = "modulated_rms_norm", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 4096, .groups = 8},
      {.op = "embedding", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 256},
      {.op = "embedding", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 256, .out_rows = 100},
      {.op = "embedding", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 256, .words = {.given = 1, .in = 1}},
      {.op = "embedding", .entry = "bwd", .dtype = TIGON_F32, .rows = 64, .cols = 258, .words = {.given = 1, .out = 1}},
      {.op = "rope", .entry = "fwd", .dtype = TIGON_F32, .rows = 64, .cols = 19200},
      {.op = "rope", .entry = "fwd", .dtype = TIGON_F32, .rows = 64, .cols = 19200, .table_cols = 48},
      {.op = "rope",
       .entry = "fwd",
       .dtype = TIGON_F32,
       .rows = 64,
       .cols = 19200,
       .table_cols = 48,
       .words = {.table_bytes = 2}},
  };
  enum { CALLS = sizeof calls / sizeof *calls };
  for (int i = 0; i < CALLS; ++i)
    for (int j = 0; j < i; ++j) assert_string_not_equal(made(context, &calls[i]).text, made(context, &calls[j]).text);
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < CALLS; ++i) expect_plan(context, &calls[i]);
  plans_of(context)->force = TIGON_CASE_E;
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < CALLS; ++i) expect_plan(context, &calls[i]);
  plans_of(context)->force = TIGON_CASE_AUTO;
}

static void more_shapes_than_places(void **state) {
  tigon_context *context = *state;
  for (int round = 0; round < 3; ++round)
    for (int64_t rows = 1; rows <= 5 * ASCEND_PLANS; ++rows) {
      const tigon_plan_request call = {
          .op = "rms_norm", .entry = "bwd", .dtype = TIGON_F32, .rows = round == 1 ? 1 + rows % 7 : rows, .cols = 96};
      expect_plan(context, &call);
    }
}

static void a_refusal_is_remembered_with_its_sentence(void **state) {
  tigon_context *context = *state;
  const tigon_plan_request call = {
      .op = "rms_norm", .entry = "fwd", .dtype = TIGON_F32, .rows = INT64_MAX / 4, .cols = 1 << 20};
  tigon_plan plan;
  for (int round = 0; round < 2; ++round) {
    context->queue.reason = NULL;
    assert_int_equal(ascend_plan(&context->queue, &call, &plan), TIGON_ERROR_INVALID);
    assert_string_equal(context->queue.reason, "2305843009213693951 rows x 1048576 cols are beyond 2^63 bytes");
  }
}

static int setup(void **state) {
  const tigon_context_desc desc = {.device = "ascend-sim:910B4"};
  return tigon_context_create(&desc, (tigon_context **)state) != TIGON_OK;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_field_has_a_plan_of_its_own),
      cmocka_unit_test(more_shapes_than_places),
      cmocka_unit_test(a_refusal_is_remembered_with_its_sentence),
  };
  return cmocka_run_group_tests(tests, setup, api_teardown);
}
