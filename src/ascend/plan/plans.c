#include "ascend/plan/plans.h"

#include <string.h>

#include "ascend/launch.h"

enum { WORDS = sizeof(tigon_plan_request) / sizeof(uint64_t) };
_Static_assert(sizeof(tigon_plan_request) == 4 * sizeof(void *) + 8 + 9 * sizeof(int64_t) + sizeof(tigon_call_words),
               "padding would tell equal calls apart");

/* The place of a call's plan: the one that has it, or the first free one of those where it would be looked for. */
static ascend_planned *find(ascend_plans *plans, const tigon_plan_request *call) {
  uint64_t words[WORDS], hash = 0; /* by 2^64 / the golden ratio; a sum of products that do not wait for each other */
  memcpy(words, call, sizeof words);
  for (uint64_t i = 0; i < WORDS; ++i) hash += words[i] * (0x9e3779b97f4a7c15 * (2 * i + 1));
  for (size_t at = hash >> 32;; ++at) {
    ascend_planned *place = &plans->of[at % ASCEND_PLANS];
    if (!place->call.op || memcmp(&place->call, call, sizeof *call) == 0) return place;
  }
}

static void make(const tigon_device_desc *device, const tigon_plan_request *call, tigon_plan *plan) {
  const tigon_call_words *words = &call->words;
  tigon_footprint footprint;
  if (!tigon_footprint_find(call->op, call->entry, call->dtype, &footprint)) {
    *plan = (tigon_plan){.status = TIGON_ERROR_INVALID, .reason = "the planner has no footprint for it"};
    return;
  }
  footprint.f32_temporaries += words->temporaries;
  if (words->table_bytes) footprint.row_table_bytes = words->table_bytes;
  if (words->tables) footprint.row_tables = words->tables;
  if (words->given) {
    footprint.row_scalars_in = words->in;
    footprint.row_scalars_out = words->out;
    footprint.label_words = words->label;
    footprint.totals = words->totals;
  }
  tigon_plan_request request = *call;
  request.footprint = &footprint;
  request.device = device;
  if (tigon_plan_make(&request, plan) != TIGON_ERROR_SCRATCH || call->force == TIGON_CASE_AUTO) return;
  request.force = TIGON_CASE_AUTO;
  tigon_plan_make(&request, plan);
}

static const tigon_plan *plan_of(tigon_queue *queue, const tigon_plan_request *call) {
  ascend_device *device = ascend_of(queue);
  ascend_plans *plans = &device->plans;
  tigon_plan_request asked = *call;
  asked.force = plans->force;
  ascend_planned *place = find(plans, &asked);
  if (!place->call.op) {
    if (plans->count == ASCEND_PLANS / 4 * 3) {
      memset(plans->of, 0, sizeof plans->of);
      plans->count = 0;
      place = find(plans, &asked);
    }
    make(&device->soc->device, &asked, &place->plan);
    place->call = asked;
    ++plans->count;
  }
  if (place->plan.status != TIGON_OK) {
    memcpy(plans->reason, place->plan.reason, sizeof plans->reason);
    queue->reason = plans->reason;
  }
  return &place->plan;
}

tigon_status ascend_plan(tigon_queue *queue, const tigon_plan_request *call, tigon_plan *plan) {
  ascend_plans *plans = &ascend_of(queue)->plans;
  *plan = *plan_of(queue, call);
  plans->planned |= TIGON_CASE_BIT(plan->chosen) | TIGON_CASE_BIT(plan->cut);
  plans->predicted += plan->bytes_moved + plan->bytes_extra;
  return plan->status;
}

tigon_status ascend_plan_rows(tigon_queue *queue, const char *op, const char *entry, tigon_dtype dtype, int64_t rows,
                              int64_t cols, tigon_plan *plan) {
  const tigon_plan_request call = {.op = op, .entry = entry, .dtype = dtype, .rows = rows, .cols = cols};
  return ascend_plan(queue, &call, plan);
}

int64_t ascend_plan_workspace(tigon_queue *queue, const tigon_plan_request *call) {
  const tigon_plan *plan = plan_of(queue, call);
  return plan->status == TIGON_OK ? plan->workspace_bytes : -(int64_t)plan->status;
}

int64_t ascend_plan_rows_workspace(tigon_queue *queue, const char *op, const char *entry, tigon_dtype dtype,
                                   int64_t rows, int64_t cols) {
  const tigon_plan_request call = {.op = op, .entry = entry, .dtype = dtype, .rows = rows, .cols = cols};
  return ascend_plan_workspace(queue, &call);
}
