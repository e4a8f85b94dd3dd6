/* rms_norm, fused_add_rms_norm, layer_norm and modulated_rms_norm: two engines, one of which subtracts the mean. */
#include "core/context.h"
#include "opencl/column_sum.h"
#include "opencl/kernel/norm.h"
#include "opencl/tables.h"

_Static_assert((int)CASTING_LLAMA == (int)TIGON_CASTING_LLAMA && (int)CASTING_GEMMA == (int)TIGON_CASTING_GEMMA &&
                   (int)CASTING_NONE == (int)TIGON_CASTING_NONE,
               "the kernels' casting modes");

static const tigon_row_space one = {1, 1, 1};

/* ---- forward ---- */

/* A shift may be layer_norm's b, which is one row. */
static norm_fwd_numbers fwd_numbers(const tigon_norm_fwd_problem *p) {
  const bool modulated = p->scale.data;
  return (norm_fwd_numbers){.space = p->space,
                            .groups = modulated ? p->groups : one,
                            .cols = p->cols,
                            .share = modulated ? p->share : p->space.rows,
                            .x = opencl_pitch(&p->x),
                            .residual = opencl_pitch(&p->residual),
                            .s = opencl_pitch(&p->s),
                            .y = opencl_pitch(&p->y),
                            .z = opencl_pitch(&p->z),
                            .scale = opencl_pitch(&p->scale),
                            .shift = opencl_pitch(&p->shift),
                            .w_dtype = (int32_t)p->w_dtype,
                            .scale_dtype = (int32_t)p->scale_dtype,
                            .shift_dtype = (int32_t)(modulated ? p->shift_dtype : p->b_dtype),
                            .casting = (int32_t)p->casting,
                            .eps = p->eps,
                            .w_offset = p->w_offset};
}

static tigon_status fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p, const opencl_kernel *kernel) {
  const norm_fwd_numbers k = fwd_numbers(p);
  const void *shift = p->scale.data ? p->shift.data : p->b;
  return opencl_launch(queue, kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->x.data, p->w, p->z.data, p->residual.data, p->s.data, p->y.data, p->rstd,
                                     p->mean, p->scale.data, shift),
                       &k, sizeof k);
}

tigon_status tigon_opencl_rms_norm_quantised(tigon_queue *queue, const tigon_rms_norm_quantised_problem *p) {
  static const opencl_kernel kernel = {"rms_norm", "rms_norm_quantised"};
  norm_fwd_numbers k = fwd_numbers(p);
  k.y = opencl_pitch(&p->q);
  k.is_i8 = p->q_dtype == TIGON_I8;
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->x.data, p->w, p->z.data, p->q.data, p->q_scale), &k, sizeof k);
}

/* ---- backward ---- */

/* Vectors of a slab. */
typedef enum sums_of { RMS_SUMS = 1, LAYER_SUMS = 2, MODULATED_SUMS = 3 } sums_of;

/* Groups of rows that share a scale, each in parts; `units` work-items or groups have them all. */
typedef struct norm_walk {
  int64_t groups, share, parts, units;
  bool sums; /* are wanted: each has a slab */
} norm_walk;

/* A group of few rows is whole: its parts would have more slabs to be added up than rows. */
static norm_walk walk_of(const tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  enum { FEW = 16 };
  const bool modulated = p->scale.data;
  norm_walk w = {.groups = modulated ? p->groups.rows : 1,
                 .share = modulated ? p->share : p->space.rows,
                 .sums = p->dw || p->db || p->dscale.data || p->dshift.data};
  if (p->space.rows == 0) return w;
  const opencl_shape rows = opencl_row_shape(queue, p->space.rows);
  const int64_t most = w.sums ? opencl_slabs(queue, p->space.rows) : rows.global[0] / rows.local[0];
  const int64_t fit = w.groups < most ? most / w.groups : 1;
  w.parts = modulated && w.sums && w.share <= FEW ? 1 : fit < w.share ? fit : w.share;
  w.units = w.groups * w.parts < most ? w.groups * w.parts : most;
  return w;
}

static tigon_status bwd_rows(tigon_queue *queue, const tigon_norm_bwd_problem *p, const opencl_kernel *kernel,
                             const norm_walk *w, sums_of sums) {
  const norm_bwd_numbers k = {.space = p->space,
                              .groups = p->scale.data ? p->groups : one,
                              .cols = p->cols,
                              .share = w->share,
                              .parts = w->parts,
                              .sums = sums,
                              .dy = opencl_pitch(&p->dy),
                              .x = opencl_pitch(&p->x),
                              .dx = opencl_pitch(&p->dx),
                              .ds = opencl_pitch(&p->ds),
                              .z = opencl_pitch(&p->z),
                              .dz = opencl_pitch(&p->dz),
                              .scale = opencl_pitch(&p->scale),
                              .dscale = opencl_pitch(&p->dscale),
                              .dshift = opencl_pitch(&p->dshift),
                              .w_dtype = (int32_t)p->w_dtype,
                              .scale_dtype = (int32_t)p->scale_dtype,
                              .dscale_dtype = (int32_t)p->dscale_dtype,
                              .dshift_dtype = (int32_t)p->dshift_dtype,
                              .casting = (int32_t)p->casting,
                              .accumulate = p->accumulate_dscale,
                              .w_offset = p->w_offset};
  opencl_shape shape = opencl_row_shape(queue, w->units);
  if (w->sums) shape.slabs = w->units;
  return opencl_launch(queue, kernel, p->dtype, shape,
                       OPENCL_MEMORY(p->dy.data, p->x.data, p->w, p->rstd, p->mean, p->ds.data, p->z.data, p->dx.data,
                                     p->dz.data, w->sums ? p->slabs : NULL, p->scale.data, p->dscale.data,
                                     p->dshift.data),
                       &k, sizeof k);
}

/* Vector `which` of the slabs; `count` of them for a row of `to`. */
static opencl_column_sum sum_of(const tigon_norm_bwd_problem *p, sums_of sums, int which, int64_t count, void *to,
                                tigon_dtype dtype, bool accumulate) {
  return (opencl_column_sum){.slabs = count ? p->slabs + which * p->cols : NULL,
                             .count = count,
                             .step = sums * p->cols,
                             .cols = p->cols,
                             .to = {to, dtype},
                             .accumulate = accumulate};
}

/* For groups in parts; whole ones have their gradients. */
static tigon_status sum_modulation(tigon_queue *queue, const tigon_norm_bwd_problem *p, const norm_walk *w) {
  if (w->parts == 1) return TIGON_OK;
  const bool more = p->accumulate_dscale;
  const opencl_column_sum scale = sum_of(p, MODULATED_SUMS, 1, w->parts, p->dscale.data, p->dscale_dtype, more),
                          shift = sum_of(p, MODULATED_SUMS, 2, w->parts, p->dshift.data, p->dshift_dtype, more);
  TIGON_TRY(opencl_sum_columns_of_rows(queue, &scale, &p->groups, &p->dscale));
  return opencl_sum_columns_of_rows(queue, &shift, &p->groups, &p->dshift);
}

static tigon_status bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p, const opencl_kernel *kernel,
                        sums_of sums) {
  const norm_walk w = walk_of(queue, p);
  const opencl_column_sum dw = sum_of(p, sums, 0, w.units, p->dw, p->dw_dtype, p->accumulate_dw),
                          db = sum_of(p, sums, 1, w.units, p->db, p->db_dtype, p->accumulate_dw);
  TIGON_TRY(bwd_rows(queue, p, kernel, &w, sums));
  TIGON_TRY(opencl_sum_columns(queue, &dw));
  TIGON_TRY(opencl_sum_columns(queue, &db));
  return sums == MODULATED_SUMS ? sum_modulation(queue, p, &w) : TIGON_OK;
}

/* ---- the slots of an operator: its engine, and the vectors of its slabs ---- */

#define NORM(op, engine, sums)                                                                 \
  tigon_status tigon_opencl_##op##_fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p) {  \
    static const opencl_kernel kernel = {#engine, #engine "_fwd"};                             \
    return fwd(queue, p, &kernel);                                                             \
  }                                                                                            \
  int64_t tigon_opencl_##op##_bwd_bytes(tigon_queue *queue, const tigon_norm_bwd_problem *p) { \
    return tigon_slab_bytes(opencl_slabs(queue, p->space.rows), sums, p->cols);                \
  }                                                                                            \
  tigon_status tigon_opencl_##op##_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p) {  \
    static const opencl_kernel kernel = {#engine, #engine "_bwd"};                             \
    return bwd(queue, p, &kernel, sums);                                                       \
  }
NORM(rms_norm, rms_norm, RMS_SUMS)
NORM(fused_add_rms_norm, rms_norm, RMS_SUMS)
NORM(layer_norm, layer_norm, LAYER_SUMS)
NORM(modulated_rms_norm, rms_norm, MODULATED_SUMS)
