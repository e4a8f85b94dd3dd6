/* rms_norm and fused_add_rms_norm on Ascend: the launches of a call. */
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

tigon_status ascend_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p, const tigon_plan *plan) {
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

static void backward_uses(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p, const tigon_plan *plan,
                          const float *partials, int64_t count) {
  ascend_uses_rows(queue, "dy", &p->space, &p->dy, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "x", &p->space, &p->x, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "ds", &p->space, &p->ds, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "dx", &p->space, &p->dx, p->cols, p->dtype, SIM_WRITES);
  ascend_uses(queue, "w", p->w, p->cols, p->w_dtype, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "rstd", p->rstd, p->space.rows, TIGON_F32, SIM_READS);
  ascend_uses(queue, "slabs", p->dw ? p->slabs : NULL, plan->slabs * p->cols, TIGON_F32, SIM_WRITES | SIM_SHARED);
  ascend_uses(queue, "partials", partials, count, TIGON_F32, SIM_READS | SIM_WRITES | SIM_SHARED);
}

tigon_status ascend_rms_norm_bwd(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p, const tigon_plan *plan) {
  if (plan->rows == 0) return ascend_column_sums(queue, NULL, 0, 0, p->cols, p->dw, p->dw_dtype, p->accumulate_dw);
  const bool split = plan->cut == TIGON_CASE_F, apart = split || (plan->cut == TIGON_CASE_E && p->dw);
  const int64_t count = apart ? plan->rows * plan->splits : 0;
  float *partials = NULL;
  if (apart) partials = p->dw ? p->slabs + plan->partials_offset / 4 : ascend_scratch(queue, count);
  if (apart && !partials) return TIGON_ERROR_DEVICE;
  rms_norm_bwd_arguments a = {.w = ascend_walk(plan),
                              .space = ascend_space(&p->space),
                              .dy = ascend_rows(&p->dy),
                              .x = ascend_rows(&p->x),
                              .dx = ascend_rows(&p->dx),
                              .ds = ascend_rows(&p->ds),
                              .weight = (gm_ptr)p->w,
                              .rstd = (gm_ptr)p->rstd,
                              .slabs = p->dw ? (gm_ptr)p->slabs : NULL,
                              .partials = (gm_ptr)partials,
                              .dtype = p->dtype,
                              .w_dtype = p->w_dtype,
                              .casting = p->casting,
                              .parts = PART_SUMS | PART_ROWS,
                              .w_offset = p->w_offset};
  if (split) {
    a.parts = PART_SUMS;
    backward_uses(queue, p, plan, partials, count);
    const tigon_status status = ascend_launch(queue, "rms_norm_bwd", rms_norm_bwd, &a, plan->grid);
    if (status != TIGON_OK) return status;
    a.parts = PART_ROWS;
  }
  backward_uses(queue, p, plan, partials, count);
  const tigon_status status = ascend_launch(queue, "rms_norm_bwd", rms_norm_bwd, &a, plan->grid);
  if (status != TIGON_OK || !p->dw) return status;
  return ascend_column_sums(queue, p->slabs, plan->slabs, p->cols, p->cols, p->dw, p->dw_dtype, p->accumulate_dw);
}
