/* softmax on Ascend: the launches of a call. */
#include "ascend/kernel/softmax.h"

#include "ascend/ascend.h"

tigon_status ascend_softmax_fwd(tigon_queue *queue, const tigon_softmax_fwd_problem *p) {
  tigon_plan plan;
  const char *entry = !p->mask.data ? "fwd" : p->mask_dtype == p->dtype ? "fwd_mask" : "fwd_mask_f32";
  const tigon_status status = ascend_plan_rows(queue, "softmax", entry, p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  softmax_fwd_arguments a = {.w = ascend_walk(&plan),
                             .space = ascend_space(&p->space),
                             .x = ascend_rows(&p->x),
                             .y = ascend_rows(&p->y),
                             .mask = ascend_rows(&p->mask),
                             .dtype = p->dtype,
                             .mask_dtype = p->mask_dtype,
                             .causal = p->causal,
                             .tokens = p->tokens,
                             .scale = p->scale};
  return ascend_launch_parts(queue, "softmax_fwd", softmax_fwd, &a, &plan, 2);
}

tigon_status ascend_softmax_bwd(tigon_queue *queue, const tigon_softmax_bwd_problem *p) {
  tigon_plan plan;
  const tigon_status status = ascend_plan_rows(queue, "softmax", "bwd", p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  reduce_arguments a = ascend_reduce(&plan, &p->space, p->dtype, &p->dy, &p->y, &p->dx);
  a.number = p->scale;
  return ascend_launch_parts(queue, "softmax_bwd", softmax_bwd, &a, &plan, 1);
}
