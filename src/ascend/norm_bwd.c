/* Backward of rms_norm, fused_add_rms_norm, layer_norm and group_norm on Ascend: the launches of a call. */
#include "ascend/kernel/norm_bwd.h"

#include "ascend/ascend.h"
#include "ascend/groups.h"

static void uses(tigon_queue *queue, const tigon_norm_bwd_problem *p, const tigon_plan *plan, const ascend_groups *g,
                 const float *partials, int64_t count) {
  const int64_t sums = p->mean ? 2 : 1;
  ascend_uses_rows(queue, "dy", &p->space, &p->dy, ascend_groups_extent(g, p->cols, 0), p->dtype, SIM_READS);
  ascend_uses_rows(queue, "x", &p->space, &p->x, ascend_groups_extent(g, p->cols, 1), p->dtype, SIM_READS);
  ascend_uses_rows(queue, "ds", &p->space, &p->ds, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "dx", &p->space, &p->dx, ascend_groups_extent(g, p->cols, 2), p->dtype, SIM_WRITES);
  ascend_uses(queue, "w", p->w, g->vector, p->w_dtype, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "rstd", p->rstd, p->space.rows, TIGON_F32, SIM_READS);
  ascend_uses(queue, "mean", p->mean, p->space.rows, TIGON_F32, SIM_READS);
  ascend_uses(queue, "slabs", p->dw || p->db ? p->slabs : NULL, plan->slabs * sums * g->vector, TIGON_F32,
              SIM_WRITES | SIM_SHARED);
  ascend_uses(queue, "partials", partials, count, TIGON_F32, SIM_READS | SIM_WRITES | SIM_SHARED);
}

/* dw and db from `count` slabs of `sums` vectors. */
static tigon_status join_slabs(tigon_queue *queue, const tigon_norm_bwd_problem *p, int64_t count, int64_t sums,
                               int64_t vector) {
  void *const to[] = {p->dw, p->db};
  const tigon_dtype dtypes[] = {p->dw_dtype, p->db_dtype};
  for (int i = 0; i < 2; ++i) {
    if (!to[i]) continue;
    const tigon_status status = ascend_column_sums(queue, count ? p->slabs + i * vector : NULL, count, sums * vector,
                                                   vector, to[i], dtypes[i], p->accumulate_dw);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}

static tigon_status backward(tigon_queue *queue, const tigon_norm_bwd_problem *p, const tigon_plan *plan,
                             const ascend_groups *g) {
  const int64_t sums = p->mean ? 2 : 1;
  const bool slabs = p->dw || p->db, split = plan->cut == TIGON_CASE_F;
  if (plan->rows == 0 || plan->cols == 0) return join_slabs(queue, p, 0, sums, g->vector);
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
                          .groups = g->kernel,
                          .weight = (gm_ptr)p->w,
                          .rstd = (gm_ptr)p->rstd,
                          .mean = (gm_ptr)p->mean,
                          .dw = p->dw ? (gm_ptr)p->slabs : NULL,
                          .db = p->db ? (gm_ptr)(p->slabs + g->vector) : NULL,
                          .partials = (gm_ptr)partials,
                          .slab_pitch = sums * g->vector,
                          .slab_splits = plan->chosen == TIGON_CASE_G,
                          .dtype = p->dtype,
                          .w_dtype = p->w_dtype,
                          .casting = p->casting,
                          .w_offset = p->w_offset};
  gm_rows *const rows[] = {&a.dy, &a.x, &a.dx};
  ascend_groups_apply(g, &a.w, &a.space, rows, 3);
  const int64_t parts[] = {PART_SUMS, PART_ROWS}, whole[] = {PART_SUMS | PART_ROWS};
  for (int i = 0; i < (split ? 2 : 1); ++i) {
    a.parts = split ? parts[i] : whole[i];
    uses(queue, p, plan, g, partials, count);
    const tigon_status status = ascend_launch(queue, "norm_bwd", norm_bwd, &a, plan->grid);
    if (status != TIGON_OK) return status;
  }
  return join_slabs(queue, p, plan->slabs, sums, g->vector);
}

tigon_status ascend_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  const ascend_groups g = ascend_no_groups(p->space.rows, p->cols);
  return backward(queue, p, queue->plan, &g);
}

tigon_status ascend_group_norm_bwd(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  const tigon_planes planes[] = {p->dy, p->x, p->dx};
  const ascend_groups g = ascend_groups_of(p->batch, p->groups, p->channels, p->run, planes, 3);
  const tigon_norm_bwd_problem rows = {.space = ascend_group_space(&g),
                                       .cols = p->channels * p->run,
                                       .dtype = p->dtype,
                                       .w_dtype = p->w_dtype,
                                       .dw_dtype = p->dw_dtype,
                                       .db_dtype = p->db_dtype,
                                       .dy = ascend_group_rows(&p->dy, p->channels),
                                       .x = ascend_group_rows(&p->x, p->channels),
                                       .dx = ascend_group_rows(&p->dx, p->channels),
                                       .w = p->w,
                                       .rstd = p->rstd,
                                       .mean = p->mean,
                                       .dw = p->dw,
                                       .db = p->db,
                                       .slabs = p->slabs,
                                       .casting = TIGON_CASTING_GEMMA,
                                       .accumulate_dw = p->accumulate};
  return backward(queue, &rows, queue->plan, &g);
}
