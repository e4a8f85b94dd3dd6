/* rms_norm and fused_add_rms_norm forward on Ascend: the launches of a call. */
#include "ascend/kernel/rms_norm.h"

#include "ascend/ascend.h"

tigon_status ascend_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  tigon_plan plan;
  const char *op = p->s.data ? "fused_add_rms_norm" : "rms_norm", *entry = p->z.data ? "fwd_gate" : "fwd";
  const tigon_status status = ascend_plan_rows(queue, op, entry, p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  rms_norm_fwd_arguments a = {.w = ascend_walk(&plan),
                              .space = ascend_space(&p->space),
                              .x = ascend_rows(&p->x),
                              .y = ascend_rows(&p->y),
                              .residual = ascend_rows(&p->residual),
                              .sum = ascend_rows(&p->s),
                              .z = ascend_rows(&p->z),
                              .weight = (gm_ptr)p->w,
                              .rstd = (gm_ptr)p->rstd,
                              .dtype = p->dtype,
                              .w_dtype = p->w_dtype,
                              .casting = p->casting,
                              .eps = p->eps,
                              .w_offset = p->w_offset};
  return ascend_launch_parts(queue, "rms_norm_fwd", rms_norm_fwd, &a, &plan, 1);
}
