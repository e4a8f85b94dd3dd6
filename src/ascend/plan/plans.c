#include "ascend/plan/plans.h"

#include <stdio.h>
#include <string.h>

#include "ascend/launch.h"

/* The place of a key's plan: the one that has it, or the first free one of those where it would be looked for. */
static ascend_planned *find(ascend_plans *plans, const uint64_t key[ASCEND_PLAN_KEY]) {
  uint64_t hash = 0; /* by 2^64 / the golden ratio; a sum of products that do not wait for each other */
  for (uint64_t i = 0; i < ASCEND_PLAN_KEY; ++i) hash += key[i] * (0x9e3779b97f4a7c15 * (2 * i + 1));
  for (size_t at = hash >> 32;; ++at) {
    ascend_planned *place = &plans->of[at % ASCEND_PLANS];
    if (!place->key[0] || memcmp(place->key, key, sizeof place->key) == 0) return place;
  }
}

static void make(const tigon_device_desc *device, tigon_plan_case force, const ascend_plan_call *call,
                 tigon_plan *plan) {
  tigon_footprint footprint;
  if (!tigon_footprint_find(call->op, call->entry, call->dtype, &footprint)) {
    *plan = (tigon_plan){.status = TIGON_ERROR_INVALID, .reason = "the planner has no footprint for it"};
    return;
  }
  footprint.f32_temporaries += call->f32_temporaries;
  if (call->row_table_bytes > 0) footprint.row_table_bytes = call->row_table_bytes;
  if (call->words) {
    footprint.row_scalars_in = call->words->in;
    footprint.row_scalars_out = call->words->out;
    footprint.label_words = call->words->label;
    footprint.totals = call->words->totals;
  }
  tigon_plan_request request = {.footprint = &footprint,
                                .device = device,
                                .rows = call->rows,
                                .cols = call->cols,
                                .groups = call->groups,
                                .run = call->run,
                                .out_rows = call->out_rows,
                                .col_unit = call->col_unit,
                                .table_cols = call->table_cols,
                                .key_cols = call->key_cols,
                                .sequence = call->sequence,
                                .force = force};
  if (tigon_plan_make(&request, plan) != TIGON_ERROR_SCRATCH || force == TIGON_CASE_AUTO) return;
  request.force = TIGON_CASE_AUTO;
  tigon_plan_make(&request, plan);
}

static const tigon_plan *plan_of(tigon_queue *queue, const ascend_plan_call *call) {
  ascend_device *device = ascend_of(queue);
  ascend_plans *plans = &device->plans;
  /* All that a plan depends on but the device. */
  const ascend_row_words *words = call->words;
  const uint64_t small = (uint64_t)call->dtype | (uint64_t)plans->force << 8 | (uint64_t)call->f32_temporaries << 16 |
                         (uint64_t)call->row_table_bytes << 24;
  const uint64_t key[ASCEND_PLAN_KEY] = {
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
  ascend_planned *place = find(plans, key);
  if (!place->key[0]) {
    if (plans->count == ASCEND_PLANS / 4 * 3) {
      memset(plans->of, 0, sizeof plans->of);
      plans->count = 0;
      place = find(plans, key);
    }
    make(&device->soc->device, plans->force, call, &place->plan);
    memcpy(place->key, key, sizeof key);
    ++plans->count;
  }
  if (place->plan.status != TIGON_OK) {
    memcpy(plans->reason, place->plan.reason, sizeof plans->reason);
    queue->reason = plans->reason;
  }
  return &place->plan;
}

tigon_status ascend_plan(tigon_queue *queue, const ascend_plan_call *call, tigon_plan *plan) {
  ascend_plans *plans = &ascend_of(queue)->plans;
  *plan = *plan_of(queue, call);
  plans->planned |= TIGON_CASE_BIT(plan->chosen) | TIGON_CASE_BIT(plan->cut);
  plans->predicted += plan->bytes_moved + plan->bytes_extra;
  return plan->status;
}

tigon_status ascend_plan_rows(tigon_queue *queue, const char *op, const char *entry, tigon_dtype dtype, int64_t rows,
                              int64_t cols, tigon_plan *plan) {
  const ascend_plan_call call = {.op = op, .entry = entry, .dtype = dtype, .rows = rows, .cols = cols};
  return ascend_plan(queue, &call, plan);
}

int64_t ascend_plan_workspace(tigon_queue *queue, const ascend_plan_call *call) {
  const tigon_plan *plan = plan_of(queue, call);
  return plan->status == TIGON_OK ? plan->workspace_bytes : -(int64_t)plan->status;
}
