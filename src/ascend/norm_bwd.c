/* Backward of rms_norm, fused_add_rms_norm, modulated_rms_norm, layer_norm and group_norm on Ascend: the launches of a call. */
#include "ascend/kernel/norm_bwd.h"

#include "ascend/ascend.h"
#include "ascend/groups.h"
#include "ascend/kernel/modulated_rms_norm.h"

/* dw, dscale and dshift from `count` slabs of the groups' sums. */
static tigon_status join_ranges(tigon_queue *queue, const tigon_norm_bwd_problem *p, int64_t count) {
  const int64_t cores = ascend_of(queue)->soc->device.cores, chunk = modulated_chunk(p->cols, cores);
  const int64_t sums = count * MODULATED_SUMS * p->groups.rows * p->cols;
  const modulated_sums_arguments a = {.slabs = count ? (gm_ptr)p->slabs : NULL,
                                      .space = ascend_space(&p->groups),
                                      .scale = ascend_rows(&p->scale),
                                      .dscale = ascend_rows(&p->dscale),
                                      .dshift = ascend_rows(&p->dshift),
                                      .weight = (gm_ptr)p->w,
                                      .dw = (gm_ptr)p->dw,
                                      .count = count,
                                      .cols = p->cols,
                                      .chunk = chunk,
                                      .w_dtype = p->w_dtype,
                                      .scale_dtype = p->scale_dtype,
                                      .dw_dtype = p->dw_dtype,
                                      .dscale_dtype = p->dscale_dtype,
                                      .dshift_dtype = p->dshift_dtype,
                                      .accumulate_dw = p->accumulate_dw,
                                      .accumulate_dscale = p->accumulate_dscale,
                                      .w_offset = p->w_offset};
  if (!p->dw && !p->dscale.data && !p->dshift.data) return TIGON_OK;
  ascend_shares(queue, "slabs", p->slabs, sums, TIGON_F32);
  return ascend_launch(queue, "modulated_sums", modulated_sums, &a, least((p->cols - 1) / chunk + 1, cores));
}

/* dw and db from `count` slabs of `sums` vectors. */
static tigon_status join_slabs(tigon_queue *queue, const tigon_norm_bwd_problem *p, int64_t count, int64_t sums,
                               int64_t vector) {
  if (p->scale.data) return join_ranges(queue, p, count);
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

static tigon_status backward(tigon_queue *queue, const tigon_norm_bwd_problem *p, const tigon_plan_request *call,
                             const ascend_groups *g) {
  tigon_plan plan;
  tigon_status status = ascend_plan(queue, call, &plan);
  if (status != TIGON_OK) return status;
  const int64_t words = p->mean ? 2 : 1,
                sums = p->scale.data ? MODULATED_SUMS : words; /* words of a row; sums of a slab */
  const bool wants_dw = p->dw || p->dscale.data, wants_db = p->db || p->dshift.data;
  const bool slabs = wants_dw || wants_db, split = plan.cut == TIGON_CASE_F;
  if (plan.rows == 0 || plan.cols == 0) return join_slabs(queue, p, 0, sums, g->vector);
  const int64_t count = split || (plan.cut == TIGON_CASE_E && slabs) ? plan.rows * plan.splits * words : 0;
  float *partials = NULL;
  if (count) partials = slabs ? p->slabs + plan.partials_offset / 4 : ascend_scratch(queue, count);
  if (count && !partials) return TIGON_ERROR_DEVICE;
  norm_bwd_arguments a = {.w = ascend_walk(&plan),
                          .space = ascend_space(&p->space),
                          .dy = ascend_rows(&p->dy),
                          .x = ascend_rows(&p->x),
                          .dx = ascend_rows(&p->dx),
                          .ds = ascend_rows(&p->ds),
                          .z = ascend_rows(&p->z),
                          .dz = ascend_rows(&p->dz),
                          .groups = g->kernel,
                          .groups_space = ascend_space(&p->groups),
                          .scale = ascend_rows(&p->scale),
                          .weight = (gm_ptr)p->w,
                          .rstd = (gm_ptr)p->rstd,
                          .mean = (gm_ptr)p->mean,
                          .dw = wants_dw ? (gm_ptr)p->slabs : NULL,
                          .db = wants_db ? (gm_ptr)(p->slabs + g->vector) : NULL,
                          .partials = (gm_ptr)partials,
                          .slab_pitch = sums * g->vector,
                          .slab_splits = plan.chosen == TIGON_CASE_G,
                          .dtype = p->dtype,
                          .w_dtype = p->w_dtype,
                          .scale_dtype = p->scale_dtype,
                          .casting = p->casting,
                          .w_offset = p->w_offset};
  gm_rows *const rows[] = {&a.dy, &a.x, &a.dx};
  ascend_groups_apply(g, &a.w, &a.space, rows, 3);
  const int64_t parts[] = {PART_SUMS, PART_ROWS}, whole[] = {PART_SUMS | PART_ROWS};
  for (int i = 0; i < (split ? 2 : 1); ++i) {
    a.parts = split ? parts[i] : whole[i];
    ascend_shares(queue, "slabs", slabs ? p->slabs : NULL, plan.slabs * sums * g->vector, TIGON_F32);
    ascend_shares(queue, "partials", partials, count, TIGON_F32);
    status = ascend_launch(queue, "norm_bwd", norm_bwd, &a, plan.grid);
    if (status != TIGON_OK) return status;
  }
  return join_slabs(queue, p, plan.slabs, sums, g->vector);
}

static const char *entry_of(const tigon_norm_bwd_problem *p) { return p->z.data ? "bwd_gate" : "bwd"; }
static tigon_status rows_backward(const char *op, tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  const ascend_groups g = ascend_no_groups(p->space.rows, p->cols);
  const tigon_plan_request call = {
      .op = op, .entry = entry_of(p), .dtype = p->dtype, .rows = p->space.rows, .cols = p->cols};
  return backward(queue, p, &call, &g);
}
static int64_t rows_bytes(const char *op, tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return ascend_plan_rows_workspace(queue, op, entry_of(p), p->dtype, p->space.rows, p->cols);
}

tigon_status ascend_rms_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return rows_backward("rms_norm", queue, p);
}
int64_t ascend_rms_norm_bwd_bytes(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return rows_bytes("rms_norm", queue, p);
}
tigon_status ascend_fused_add_rms_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return rows_backward("fused_add_rms_norm", queue, p);
}
int64_t ascend_fused_add_rms_norm_bwd_bytes(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return rows_bytes("fused_add_rms_norm", queue, p);
}
tigon_status ascend_layer_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return rows_backward("layer_norm", queue, p);
}
int64_t ascend_layer_norm_bwd_bytes(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return rows_bytes("layer_norm", queue, p);
}

/* ---- modulated_rms_norm ---- */

static tigon_plan_request range_call(const tigon_norm_bwd_problem *p) {
  return (tigon_plan_request){.op = "modulated_rms_norm",
                              .entry = "bwd",
                              .dtype = p->dtype,
                              .rows = p->space.rows,
                              .cols = p->cols,
                              .groups = ascend_range_count(p->groups.rows)};
}

int64_t ascend_modulated_rms_norm_bwd_bytes(tigon_queue *queue, const tigon_modulated_rms_norm_bwd_problem *p) {
  const tigon_plan_request call = range_call(p);
  return ascend_plan_workspace(queue, &call);
}

tigon_status ascend_modulated_rms_norm_bwd(tigon_queue *queue, const tigon_modulated_rms_norm_bwd_problem *p) {
  const ascend_groups g = ascend_ranges(p->groups.rows, p->share, p->cols);
  const tigon_plan_request call = range_call(p);
  return backward(queue, p, &call, &g);
}

/* ---- group_norm ---- */

static tigon_plan_request group_call(const tigon_group_norm_bwd_problem *p) {
  return (tigon_plan_request){.op = "group_norm",
                              .entry = "bwd",
                              .dtype = p->dtype,
                              .rows = p->batch * p->groups,
                              .cols = p->channels * p->run,
                              .groups = p->groups,
                              .run = p->run};
}

int64_t ascend_group_norm_bwd_bytes(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  const tigon_plan_request call = group_call(p);
  return ascend_plan_workspace(queue, &call);
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
  const tigon_plan_request call = group_call(p);
  return backward(queue, &rows, &call, &g);
}
