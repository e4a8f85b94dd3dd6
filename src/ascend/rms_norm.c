/* rms_norm, fused_add_rms_norm and modulated_rms_norm forward on Ascend: the launches of a call. */
#include "ascend/kernel/rms_norm.h"

#include "ascend/ascend.h"
#include "ascend/groups.h"

tigon_status ascend_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  tigon_plan plan;
  const bool modulated = p->scale.data;
  const bool gated = p->z.data, quantised = p->q.data;
  const char *op = modulated ? "modulated_rms_norm" : p->s.data ? "fused_add_rms_norm" : "rms_norm";
  const tigon_plan_request call = {.op = op,
                                   .entry = quantised ? gated ? "quantised_gate" : "quantised"
                                            : gated   ? "fwd_gate"
                                                      : "fwd",
                                   .dtype = p->dtype,
                                   .rows = p->space.rows,
                                   .cols = p->cols,
                                   .groups = modulated ? ascend_range_count(p->groups.rows) : 0};
  const tigon_status status = ascend_plan(queue, &call, &plan);
  if (status != TIGON_OK) return status;
  rms_norm_fwd_arguments a = {.w = ascend_walk(&plan),
                              .space = ascend_space(&p->space),
                              .x = ascend_rows(&p->x),
                              .y = ascend_rows(&p->y),
                              .residual = ascend_rows(&p->residual),
                              .sum = ascend_rows(&p->s),
                              .z = ascend_rows(&p->z),
                              .q = ascend_rows(&p->q),
                              .groups = modulated ? ascend_ranges(p->groups.rows, p->share, p->cols).kernel
                                                  : ascend_no_groups(p->space.rows, p->cols).kernel,
                              .groups_space = ascend_space(&p->groups),
                              .scale = ascend_rows(&p->scale),
                              .shift = ascend_rows(&p->shift),
                              .weight = (gm_ptr)p->w,
                              .rstd = (gm_ptr)p->rstd,
                              .q_scale = (gm_ptr)p->q_scale,
                              .dtype = p->dtype,
                              .w_dtype = p->w_dtype,
                              .scale_dtype = p->scale_dtype,
                              .shift_dtype = p->shift_dtype,
                              .q_dtype = p->q_dtype,
                              .casting = p->casting,
                              .eps = p->eps,
                              .w_offset = p->w_offset};
  if (p->cols == 0) { /* the scales of rows without columns */
    a.w = ascend_walk_no_columns(p->space.rows);
    plan.grid = 1;
  }
  return ascend_launch_parts(queue, "rms_norm_fwd", rms_norm_fwd, &a, &plan, 1);
}
