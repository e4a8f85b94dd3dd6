/* rms_norm and fused_add_rms_norm forward on Ascend: the launches of a call. */
#include "ascend/kernel/rms_norm.h"

#include "ascend/ascend.h"

tigon_status ascend_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  tigon_plan plan;
  const char *op = p->s.data ? "fused_add_rms_norm" : "rms_norm";
  tigon_status status = ascend_plan_rows(queue, op, "fwd", p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  const int64_t partials = plan.splits > 1 ? plan.rows * plan.splits : 0;
  float *scratch = partials ? ascend_scratch(queue, partials) : NULL;
  if (partials && !scratch) return TIGON_ERROR_DEVICE;
  rms_norm_fwd_arguments a = {.w = ascend_walk(&plan),
                              .space = ascend_space(&p->space),
                              .x = ascend_rows(&p->x),
                              .y = ascend_rows(&p->y),
                              .residual = ascend_rows(&p->residual),
                              .sum = ascend_rows(&p->s),
                              .weight = (gm_ptr)p->w,
                              .rstd = (gm_ptr)p->rstd,
                              .partials = (gm_ptr)scratch,
                              .dtype = p->dtype,
                              .w_dtype = p->w_dtype,
                              .casting = p->casting,
                              .parts = PART_SUMS | PART_ROWS,
                              .eps = p->eps,
                              .w_offset = p->w_offset};
  if (partials) {
    a.parts = PART_SUMS;
    status = ascend_launch(queue, "rms_norm_fwd", rms_norm_fwd, &a, plan.grid);
    if (status != TIGON_OK) return status;
    a.parts = PART_ROWS;
  }
  return ascend_launch(queue, "rms_norm_fwd", rms_norm_fwd, &a, plan.grid);
}
