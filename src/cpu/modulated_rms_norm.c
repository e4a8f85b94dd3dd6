/* modulated_rms_norm is rms_norm with the weights (w + w_offset) * (1 + scale) and the bias shift. Backward, the rows that
 * share a scale give P = sum of dy * xhat and Q = sum of dy, as layer_norm's dw and db; then dw += (1 + scale) * P,
 * dscale = (w + w_offset) * P, dshift = Q. */
#include "cpu/column_sum.h"
#include "cpu/norm_bwd.h"
#include "cpu/norm_fwd.h"

static void fwd_task(const void *job, int64_t index) { norm_fwd_task(NORM_MODULATED, job, index); }

tigon_status TIGON_CPU(modulated_rms_norm_fwd)(tigon_queue *queue, const tigon_norm_fwd_problem *p) {
  return norm_fwd_run(NORM_MODULATED, queue, p, fwd_task);
}

/* ---- backward ---- */

enum { SUMS = 3 }; /* sums of a slab: dw; P, later dscale; Q, which is dshift */

/* A task has whole groups of rows that share a scale, or, where there are fewer groups than slabs, a part of one. */
typedef struct bwd {
  norm_bwd_cut rows;
  int64_t parts; /* parts of a group; 0: tasks have whole groups */
  int64_t tasks; /* at most as many as there are slabs; few huge rows: times rows.cut.tasks */
} bwd;

static bwd cut_groups(norm_bwd_cut rows, int64_t slabs) {
  const tigon_norm_bwd_problem *p = rows.p;
  if (p->space.rows == 0) return (bwd){rows, 0, 0};
  if (p->groups.rows >= slabs) return (bwd){rows, 0, slabs};
  const int64_t fit = slabs / p->groups.rows, parts = fit < p->share ? fit : p->share;
  return (bwd){rows, parts, p->groups.rows * parts};
}

TIGON_INLINE vf load(const void *data, int64_t c, tigon_dtype dtype, int n) {
  return n == LANES ? v_load(data, c, dtype) : v_load_n(data, c, dtype, n);
}
TIGON_INLINE void store(void *data, int64_t c, tigon_dtype dtype, vf v, int n) {
  if (n == LANES)
    v_store(data, c, dtype, v);
  else
    v_store_n(data, c, dtype, v, n);
}

/* P and Q of the slab, a group's or a part's, to dw's sum and dscale; to the outputs when they are `whole`. */
static void finish(const tigon_norm_bwd_problem *p, int64_t group, split_range at, float *slab, bool whole) {
  const int64_t cols = p->cols;
  float *dw = slab, *product = slab + cols, *sum = slab + 2 * cols;
  const void *scale = tigon_row(&p->groups, &p->scale, tigon_dtype_size(p->scale_dtype), group);
  void *dscale = tigon_row(&p->groups, &p->dscale, tigon_dtype_size(p->dscale_dtype), group);
  void *dshift = tigon_row(&p->groups, &p->dshift, tigon_dtype_size(p->dshift_dtype), group);
  for (int64_t c = at.begin; c < at.end; c += LANES) {
    const int n = at.end - c < LANES ? (int)(at.end - c) : LANES;
    const vf one = vf_set(1.0f), all = load(product, c, TIGON_F32, n);
    if (p->dw) {
      const vf factor = vf_add(one, load(scale, c, p->scale_dtype, n));
      store(dw, c, TIGON_F32, vf_fma(factor, all, load(dw, c, TIGON_F32, n)), n);
    }
    vf gradient = p->w ? vf_mul(all, vf_add(load(p->w, c, p->w_dtype, n), vf_set(p->w_offset))) : all;
    if (!whole) {
      store(product, c, TIGON_F32, gradient, n);
      continue;
    }
    if (dscale) {
      if (p->accumulate_dscale) gradient = vf_add(gradient, load(dscale, c, p->dscale_dtype, n));
      store(dscale, c, p->dscale_dtype, gradient, n);
    }
    if (dshift) {
      gradient = load(sum, c, TIGON_F32, n);
      if (p->accumulate_dscale) gradient = vf_add(gradient, load(dshift, c, p->dshift_dtype, n));
      store(dshift, c, p->dshift_dtype, gradient, n);
    }
  }
}

static void share_task(const void *rows, int64_t index) { norm_bwd_share_task(NORM_MODULATED, rows, index); }

static void bwd_task(const void *argument, int64_t share) {
  const bwd *b = argument;
  const tigon_norm_bwd_problem *p = b->rows.p;
  const split *cut = &b->rows.cut;
  const int64_t index = share / cut->tasks;
  const split_range at = split_share(cut, share);
  const bool sums = p->dw || p->dscale.data || p->dshift.data;
  float *slab = sums ? p->slabs + index * SUMS * p->cols : NULL;
  float *product = sums ? slab + p->cols : NULL, *sum = sums ? product + p->cols : NULL;
  const bool stream = tigon_cpu_streams(norm_bwd_bytes(p));
  int64_t begin, end;
  if (b->parts) {
    const int64_t group = index / b->parts;
    tigon_range(p->share, b->parts, index % b->parts, &begin, &end);
    begin += group * p->share, end += group * p->share;
  } else {
    tigon_range(p->groups.rows, b->tasks, index, &begin, &end);
    begin *= p->share, end *= p->share;
  }
  if (sums) memset(slab + at.begin, 0, (size_t)(at.end - at.begin) * sizeof *slab);
  for (int64_t r = begin, next; r < end; r = next) {
    next = b->parts ? end : r + p->share;
    TIGON_FOR_DTYPE(p->dtype, norm_bwd_rows, NORM_MODULATED, &b->rows, r, next, end, at, product, sum, stream);
    if (sums) finish(p, r / p->share, at, slab, !b->parts);
  }
}

/* dw's columns, then dscale's and dshift's of every group in parts; with no rows, sums of nothing. */
static void sum_task(const void *argument, int64_t index) {
  const bwd *b = argument;
  const tigon_norm_bwd_problem *p = b->rows.p;
  const int64_t cols = p->cols, pitch = SUMS * cols, tasks = column_sum_tasks(cols), which = index / tasks;
  column_sum sum = {p->slabs, b->tasks, pitch, cols, p->dw, p->dw_dtype, p->accumulate_dw};
  if (which) {
    const int64_t group = (which - 1) / 2, of_slab = 2 - which % 2;
    const tigon_rows *to = of_slab == 1 ? &p->dscale : &p->dshift;
    sum.slabs = b->tasks ? p->slabs + group * b->parts * pitch + of_slab * cols : NULL;
    sum.count = b->parts;
    sum.dtype = of_slab == 1 ? p->dscale_dtype : p->dshift_dtype;
    sum.out = tigon_row(&p->groups, to, tigon_dtype_size(sum.dtype), group);
    sum.accumulate = p->accumulate_dscale;
  }
  if (sum.out) column_sum_task(&sum, index % tasks);
}

int64_t TIGON_CPU(modulated_rms_norm_bwd_bytes)(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  (void)queue;
  return tigon_slab_bytes(norm_bwd_ranges(p), SUMS, p->cols);
}

tigon_status TIGON_CPU(modulated_rms_norm_bwd)(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  norm_sums parts[SPLIT_CELLS];
  const bwd b = cut_groups(norm_bwd_split(queue, p, parts, share_task), norm_bwd_ranges(p));
  const int64_t outputs = b.tasks && !b.parts ? 1 : 1 + 2 * p->groups.rows;
  tigon_cpu_parallel_bytes(queue, b.tasks * b.rows.cut.tasks, norm_bwd_bytes(p), bwd_task, &b);
  if (p->dw || p->dscale.data || p->dshift.data)
    tigon_cpu_parallel_bytes(queue, outputs * column_sum_tasks(p->cols),
                             (SUMS * b.tasks + outputs) * p->cols * (int64_t)sizeof(float), sum_task, &b);
  return TIGON_OK;
}
