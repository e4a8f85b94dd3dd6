/* softmax on Ascend: the launches of a call. */
#include "ascend/kernel/softmax.h"

#include "ascend/ascend.h"

static const int64_t apart[] = {PART_SUMS, PART_ROWS}, together[] = {PART_SUMS | PART_ROWS};

static void forward_uses(tigon_queue *queue, const tigon_softmax_fwd_problem *p, const float *partials, int64_t count) {
  const bool shared = p->mask.pitch[0] == 0 || p->mask.pitch[1] == 0 || p->mask.pitch[2] == 0;
  ascend_uses_rows(queue, "x", &p->space, &p->x, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "mask", &p->space, &p->mask, p->cols, p->mask_dtype, SIM_READS | (shared ? SIM_SHARED : 0));
  ascend_uses_rows(queue, "y", &p->space, &p->y, p->cols, p->dtype, SIM_WRITES);
  ascend_uses(queue, "partials", partials, count, TIGON_F32, SIM_READS | SIM_WRITES | SIM_SHARED);
}

tigon_status ascend_softmax_fwd(tigon_queue *queue, const tigon_softmax_fwd_problem *p) {
  const tigon_plan *plan = queue->plan;
  const int64_t count = plan->splits > 1 ? 2 * plan->rows * plan->splits : 0;
  float *partials = count ? ascend_scratch(queue, count) : NULL;
  if (count && !partials) return TIGON_ERROR_DEVICE;
  softmax_fwd_arguments a = {.w = ascend_walk(plan),
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
    forward_uses(queue, p, partials, count);
    const tigon_status status = ascend_launch(queue, "softmax_fwd", softmax_fwd, &a, plan->grid);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}

tigon_status ascend_softmax_bwd(tigon_queue *queue, const tigon_softmax_bwd_problem *p) {
  const tigon_plan *plan = queue->plan;
  const int64_t count = plan->splits > 1 ? plan->rows * plan->splits : 0;
  float *partials = count ? ascend_scratch(queue, count) : NULL;
  if (count && !partials) return TIGON_ERROR_DEVICE;
  softmax_bwd_arguments a = {.w = ascend_walk(plan),
                             .space = ascend_space(&p->space),
                             .dy = ascend_rows(&p->dy),
                             .y = ascend_rows(&p->y),
                             .dx = ascend_rows(&p->dx),
                             .partials = (gm_ptr)partials,
                             .dtype = p->dtype,
                             .scale = p->scale};
  for (int i = 0; i < (count ? 2 : 1); ++i) {
    a.parts = count ? apart[i] : together[i];
    ascend_uses_rows(queue, "dy", &p->space, &p->dy, p->cols, p->dtype, SIM_READS);
    ascend_uses_rows(queue, "y", &p->space, &p->y, p->cols, p->dtype, SIM_READS);
    ascend_uses_rows(queue, "dx", &p->space, &p->dx, p->cols, p->dtype, SIM_WRITES);
    ascend_uses(queue, "partials", partials, count, TIGON_F32, SIM_READS | SIM_WRITES | SIM_SHARED);
    const tigon_status status = ascend_launch(queue, "softmax_bwd", softmax_bwd, &a, plan->grid);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}
