#include <string.h>

#include "core/context.h"
#include "plan/plan.h"

/* The place of a key's plan: the one that has it, or the first free one of those where it would be looked for. */
static tigon_planned *find(tigon_context *context, const uint64_t key[TIGON_PLAN_KEY]) {
  uint64_t hash = 0; /* by 2^64 / the golden ratio; a sum of products that do not wait for each other */
  for (uint64_t i = 0; i < TIGON_PLAN_KEY; ++i) hash += key[i] * (0x9e3779b97f4a7c15 * (2 * i + 1));
  for (size_t at = hash >> 32;; ++at) {
    tigon_planned *place = &context->plans[at % TIGON_PLANS];
    if (!place->key[0] || memcmp(place->key, key, sizeof place->key) == 0) return place;
  }
}

static tigon_status make(tigon_context *context, const tigon_plan_call *call, tigon_plan *plan) {
  tigon_footprint footprint;
  if (!tigon_footprint_find(call->op, call->entry, call->dtype, &footprint)) return TIGON_ERROR_UNSUPPORTED;
  footprint.f32_temporaries += call->f32_temporaries;
  if (call->row_table_bytes > 0) footprint.row_table_bytes = call->row_table_bytes;
  if (call->words) {
    footprint.row_scalars_in = call->words->in;
    footprint.row_scalars_out = call->words->out;
    footprint.label_words = call->words->label;
    footprint.totals = call->words->totals;
  }
  tigon_plan_request request = {.footprint = &footprint,
                                .device = context->device,
                                .rows = call->rows,
                                .cols = call->cols,
                                .groups = call->groups,
                                .run = call->run,
                                .out_rows = call->out_rows,
                                .col_unit = call->col_unit,
                                .table_cols = call->table_cols,
                                .key_cols = call->key_cols,
                                .sequence = call->sequence,
                                .force = context->force};
  const tigon_status status = tigon_plan_make(&request, plan);
  if (status != TIGON_ERROR_SCRATCH || request.force == TIGON_CASE_AUTO) return status;
  request.force = TIGON_CASE_AUTO;
  return tigon_plan_make(&request, plan);
}

tigon_status tigon_front_plan_call(tigon_context *context, const tigon_plan_call *call, tigon_plan *plan) {
  /* All that a plan depends on but the context's device. */
  const tigon_row_words *words = call->words;
  const uint64_t small = (uint64_t)call->dtype | (uint64_t)context->force << 8 | (uint64_t)call->f32_temporaries << 16 |
                         (uint64_t)call->row_table_bytes << 24;
  const uint64_t key[TIGON_PLAN_KEY] = {
      (uintptr_t)call->op,
      (uintptr_t)call->entry,
      small,
      words ? 1 | words->in << 8 | words->out << 16 | (uint64_t)words->label << 24 | (uint64_t)words->totals << 32 : 0,
      (uint64_t)call->rows,
      (uint64_t)call->cols,
      (uint64_t)call->groups,
      (uint64_t)call->run,
      (uint64_t)call->out_rows,
      (uint64_t)call->col_unit,
      (uint64_t)call->table_cols,
      (uint64_t)call->key_cols,
      (uint64_t)call->sequence};
  tigon_planned *place = find(context, key);
  if (!place->key[0]) {
    if (context->plan_count == TIGON_PLANS / 4 * 3) {
      memset(context->plans, 0, sizeof context->plans);
      context->plan_count = 0;
      place = find(context, key);
    }
    if (make(context, call, &place->plan) == TIGON_ERROR_UNSUPPORTED)
      return tigon_fail(context, TIGON_ERROR_UNSUPPORTED, "%s_%s: the planner has no footprint for it", call->op,
                        call->entry);
    memcpy(place->key, key, sizeof key);
    ++context->plan_count;
  }
  *plan = place->plan;
  context->planned |= TIGON_CASE_BIT(plan->chosen) | TIGON_CASE_BIT(plan->cut);
  return plan->status == TIGON_OK ? TIGON_OK
                                  : tigon_fail(context, plan->status, "%s_%s: %s", call->op, call->entry, plan->reason);
}

tigon_status tigon_front_plan_launch(tigon_context *context, const tigon_plan_call *call, tigon_plan *plan) {
  *plan = (tigon_plan){0};
  return context->device->own_launches ? tigon_front_plan_call(context, call, plan) : TIGON_OK;
}

tigon_status tigon_front_plan(tigon_context *context, const char *op, const char *entry, tigon_dtype dtype,
                              int64_t rows, int64_t cols, tigon_plan *plan) {
  return tigon_front_plan_groups(context, op, entry, dtype, rows, cols, 0, 0, plan);
}

tigon_status tigon_front_plan_groups(tigon_context *context, const char *op, const char *entry, tigon_dtype dtype,
                                     int64_t rows, int64_t cols, int64_t groups, int64_t run, tigon_plan *plan) {
  const tigon_plan_call call = {
      .op = op, .entry = entry, .dtype = dtype, .rows = rows, .cols = cols, .groups = groups, .run = run};
  return tigon_front_plan_call(context, &call, plan);
}
