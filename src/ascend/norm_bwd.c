/* Backward of rms_norm, fused_add_rms_norm and layer_norm on Ascend: the launches of a call. */
#include "ascend/kernel/norm_bwd.h"

#include "ascend/ascend.h"

static void uses(tigon_queue *queue, const tigon_norm_bwd_problem *p, const tigon_plan *plan, const float *partials,
                 int64_t count) {
  const int64_t sums = p->mean ? 2 : 1;
  ascend_uses_rows(queue, "dy", &p->space, &p->dy, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "x", &p->space, &p->x, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "ds", &p->space, &p->ds, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "dx", &p->space, &p->dx, p->cols, p->dtype, SIM_WRITES);
  ascend_uses(queue, "w", p->w, p->cols, p->w_dtype, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "rstd", p->rstd, p->space.rows, TIGON_F32, SIM_READS);
  ascend_uses(queue, "mean", p->mean, p->space.rows, TIGON_F32, SIM_READS);
  ascend_uses(queue, "slabs", p->dw || p->db ? p->slabs : NULL, plan->slabs * sums * p->cols, TIGON_F32,
              SIM_WRITES | SIM_SHARED);
  ascend_uses(queue, "partials", partials, count, TIGON_F32, SIM_READS | SIM_WRITES | SIM_SHARED);
}

/* dw and db from `count` slabs of `sums` vectors. */
static tigon_status join_slabs(tigon_queue *queue, const tigon_norm_bwd_problem *p, int64_t count, int64_t sums) {
  void *const to[] = {p->dw, p->db};
  const tigon_dtype dtypes[] = {p->dw_dtype, p->db_dtype};
  for (int i = 0; i < 2; ++i) {
    if (!to[i]) continue;
    const tigon_status status = ascend_column_sums(queue, count ? p->slabs + i * p->cols : NULL, count, sums * p->cols,
                                                   p->cols, to[i], dtypes[i], p->accumulate_dw);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}

tigon_status ascend_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p, const tigon_plan *plan) {
  const int64_t sums = p->mean ? 2 : 1;
  const bool slabs = p->dw || p->db, split = plan->cut == TIGON_CASE_F;
  if (plan->rows == 0) return join_slabs(queue, p, 0, sums);
  const int64_t count = split || (plan->cut == TIGON_CASE_E && slabs) ? plan->rows * plan->splits * sums : 0;
  float *partials = NULL;
  if (count) partials = slabs ? p->slabs + plan->partials_offset / 4 : ascend_scratch(queue, count);
  if (count && !partials) return TIGON_ERROR_DEVICE;
  norm_bwd_arguments a = {.w = ascend_walk(plan),
                          .space = ascend_space(&p->space),
                          .dy = ascend_rows(&p->dy),
                          .x = ascend_rows(&p->x),
                          .dx = ascend_rows(&p->dx),
                          .ds = ascend_rows(&p->ds),
                          .weight = (gm_ptr)p->w,
                          .rstd = (gm_ptr)p->rstd,
                          .mean = (gm_ptr)p->mean,
                          .dw = p->dw ? (gm_ptr)p->slabs : NULL,
                          .db = p->db ? (gm_ptr)(p->slabs + p->cols) : NULL,
                          .partials = (gm_ptr)partials,
                          .slab_pitch = sums * p->cols,
                          .dtype = p->dtype,
                          .w_dtype = p->w_dtype,
                          .casting = p->casting,
                          .w_offset = p->w_offset};
  const int64_t parts[] = {PART_SUMS, PART_ROWS}, whole[] = {PART_SUMS | PART_ROWS};
  for (int i = 0; i < (split ? 2 : 1); ++i) {
    a.parts = split ? parts[i] : whole[i];
    uses(queue, p, plan, partials, count);
    const tigon_status status = ascend_launch(queue, "norm_bwd", norm_bwd, &a, plan->grid);
    if (status != TIGON_OK) return status;
  }
  return join_slabs(queue, p, plan->slabs, sums);
}
