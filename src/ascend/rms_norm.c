/* rms_norm and fused_add_rms_norm forward on Ascend: the launches of a call. */
#include "ascend/kernel/rms_norm.h"

#include "ascend/ascend.h"

static void forward_uses(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p, const float *partials,
                         int64_t count) {
  ascend_uses_rows(queue, "x", &p->space, &p->x, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "residual", &p->space, &p->residual, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "s", &p->space, &p->s, p->cols, p->dtype, SIM_READS | SIM_WRITES);
  ascend_uses_rows(queue, "y", &p->space, &p->y, p->cols, p->dtype, SIM_WRITES);
  ascend_uses(queue, "w", p->w, p->cols, p->w_dtype, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "rstd", p->rstd, p->space.rows, TIGON_F32, SIM_WRITES);
  ascend_uses(queue, "partials", partials, count, TIGON_F32, SIM_READS | SIM_WRITES | SIM_SHARED);
}

tigon_status ascend_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  const tigon_plan *plan = queue->plan;
  const int64_t partials = plan->splits > 1 ? plan->rows * plan->splits : 0;
  float *scratch = partials ? ascend_scratch(queue, partials) : NULL;
  if (partials && !scratch) return TIGON_ERROR_DEVICE;
  rms_norm_fwd_arguments a = {.w = ascend_walk(plan),
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
    forward_uses(queue, p, scratch, partials);
    const tigon_status status = ascend_launch(queue, "rms_norm_fwd", rms_norm_fwd, &a, plan->grid);
    if (status != TIGON_OK) return status;
    a.parts = PART_ROWS;
  }
  forward_uses(queue, p, scratch, partials);
  return ascend_launch(queue, "rms_norm_fwd", rms_norm_fwd, &a, plan->grid);
}
