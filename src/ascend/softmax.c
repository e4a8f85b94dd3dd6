/* softmax on Ascend: the launches of a call. */
#include "ascend/kernel/softmax.h"

#include "ascend/ascend.h"

static const int64_t apart[] = {PART_SUMS, PART_ROWS}, together[] = {PART_SUMS | PART_ROWS};

tigon_status ascend_softmax_fwd(tigon_queue *queue, const tigon_softmax_fwd_problem *p) {
  tigon_plan plan;
  const char *entry = !p->mask.data ? "fwd" : p->mask_dtype == p->dtype ? "fwd_mask" : "fwd_mask_f32";
  tigon_status status = ascend_plan_rows(queue, "softmax", entry, p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  const int64_t count = plan.splits > 1 ? 2 * plan.rows * plan.splits : 0;
  float *partials = count ? ascend_scratch(queue, count) : NULL;
  if (count && !partials) return TIGON_ERROR_DEVICE;
  softmax_fwd_arguments a = {.w = ascend_walk(&plan),
                             .space = ascend_space(&p->space),
                             .x = ascend_rows(&p->x),
                             .y = ascend_rows(&p->y),
                             .mask = ascend_rows(&p->mask),
                             .partials = (gm_ptr)partials,
                             .dtype = p->dtype,
                             .mask_dtype = p->mask_dtype,
                             .causal = p->causal,
                             .tokens = p->tokens,
                             .scale = p->scale};
  for (int i = 0; i < (count ? 2 : 1); ++i) {
    a.parts = count ? apart[i] : together[i];
    status = ascend_launch(queue, "softmax_fwd", softmax_fwd, &a, plan.grid);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}

tigon_status ascend_softmax_bwd(tigon_queue *queue, const tigon_softmax_bwd_problem *p) {
  tigon_plan plan;
  tigon_status status = ascend_plan_rows(queue, "softmax", "bwd", p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  const int64_t count = plan.splits > 1 ? plan.rows * plan.splits : 0;
  float *partials = count ? ascend_scratch(queue, count) : NULL;
  if (count && !partials) return TIGON_ERROR_DEVICE;
  softmax_bwd_arguments a = {.w = ascend_walk(&plan),
                             .space = ascend_space(&p->space),
                             .dy = ascend_rows(&p->dy),
                             .y = ascend_rows(&p->y),
                             .dx = ascend_rows(&p->dx),
                             .partials = (gm_ptr)partials,
                             .dtype = p->dtype,
                             .scale = p->scale};
  for (int i = 0; i < (count ? 2 : 1); ++i) {
    a.parts = count ? apart[i] : together[i];
    status = ascend_launch(queue, "softmax_bwd", softmax_bwd, &a, plan.grid);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}
