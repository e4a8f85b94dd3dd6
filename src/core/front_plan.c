#include "core/context.h"
#include "plan/plan.h"

tigon_status tigon_front_plan(tigon_context *context, const char *op, const char *entry, tigon_dtype dtype,
                              int64_t rows, int64_t cols, tigon_plan *plan) {
  return tigon_front_plan_groups(context, op, entry, dtype, rows, cols, 0, 0, plan);
}

tigon_status tigon_front_plan_groups(tigon_context *context, const char *op, const char *entry, tigon_dtype dtype,
                                     int64_t rows, int64_t cols, int64_t groups, int64_t run, tigon_plan *plan) {
  tigon_footprint footprint;
  if (!tigon_footprint_find(op, entry, dtype, &footprint))
    return tigon_fail(context, TIGON_ERROR_UNSUPPORTED, "%s_%s: the planner has no footprint for it", op, entry);
  return tigon_front_plan_footprint(context, &footprint, rows, cols, groups, run, plan);
}

tigon_status tigon_front_plan_footprint(tigon_context *context, const tigon_footprint *footprint, int64_t rows,
                                        int64_t cols, int64_t groups, int64_t run, tigon_plan *plan) {
  tigon_plan_request request = {.footprint = footprint,
                                .device = context->device,
                                .rows = rows,
                                .cols = cols,
                                .groups = groups,
                                .run = run,
                                .force = context->force};
  tigon_status status = tigon_plan_make(&request, plan);
  if (status == TIGON_ERROR_SCRATCH && request.force != TIGON_CASE_AUTO) {
    request.force = TIGON_CASE_AUTO;
    status = tigon_plan_make(&request, plan);
  }
  context->planned |= TIGON_CASE_BIT(plan->chosen) | TIGON_CASE_BIT(plan->cut);
  return status == TIGON_OK ? TIGON_OK
                            : tigon_fail(context, status, "%s_%s: %s", footprint->op, footprint->entry, plan->reason);
}
