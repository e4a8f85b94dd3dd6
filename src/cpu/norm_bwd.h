/* Rows of the norms backward: one body, expanded by the file of each op. A sweep sums what a row's dx needs, a second one
 * stores dx and adds to the slab, up to four rows at once. */
#ifndef TIGON_CPU_NORM_BWD_H
#define TIGON_CPU_NORM_BWD_H

#include <string.h>

#include "cpu/norm.h"
#include "cpu/split.h"

/* Up to NORM_GROUP rows that share a sweep, and the inputs of those that come next. */
typedef struct norm_group {
  int rows;
  bool stream;
  const char *dy[NORM_GROUP], *x[NORM_GROUP], *ds[NORM_GROUP], *z[NORM_GROUP]; /* ds, z: NULL without */
  char *dx[NORM_GROUP], *dz[NORM_GROUP];                                       /* dz: NULL without */
  const char *next_dy[NORM_GROUP], *next_x[NORM_GROUP], *next_ds[NORM_GROUP], *next_z[NORM_GROUP];
  float rstd[NORM_GROUP], center[NORM_GROUP];
  float mean_g[NORM_GROUP], mean[NORM_GROUP]; /* means of g = dy * weight, and of g * xhat */
} norm_group;

/* Rows of a full group; layer_norm's four scalars a row, and a gate's five streams, leave registers for two. */
TIGON_INLINE int norm_full_group(norm_kind kind) { return kind == NORM_LAYER || kind == NORM_GATED ? 2 : NORM_GROUP; }

/* Sums over a part of one row. */
typedef struct norm_sums {
  double g, dot; /* sums of g, and of g * (x - center) */
} norm_sums;

/* Row i of a group. */
TIGON_INLINE void norm_product(tigon_dtype dtype, norm_kind kind, const norm_group *of, int i, vf2 w, int64_t c, int n,
                               vf2 *sum, vf2 *dot) {
  const float center = of->center[i];
  vf2 g = v2_mul(v2_load(of->dy[i], c, dtype, n), w);
  const vf2 v = v2_load(of->x[i], c, dtype, n);
  if (kind == NORM_GATED) g = v2_mul(g, norm_silu(dtype, v2_load(of->z[i], c, dtype, n)));
  if (norm_centers(kind)) *sum = v2_add(g, *sum);
  *dot = v2_fma(g, norm_centers(kind) ? v2_sub(v, v2_set(center)) : v, *dot);
}
TIGON_INLINE void norm_bwd_sums(tigon_dtype dtype, norm_kind kind, const norm_group *of, int i, const norm_panel *panel,
                                norm_sums *sums) {
  const float *w = panel->w;
  const int64_t cols = panel->cols, first = panel->first;
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    vf2 s = v2_set(0), t = v2_set(0), gs = v2_set(0), gt = v2_set(0);
    int64_t c = block;
    for (; c + 2 * STEP <= end; c += 2 * STEP) {
      norm_product(dtype, kind, of, i, norm_weight(w, c), first + c, STEP, &gs, &s);
      norm_product(dtype, kind, of, i, norm_weight(w, c + STEP), first + c + STEP, STEP, &gt, &t);
    }
    for (; c < end; c += STEP) {
      const int n = end - c < STEP ? (int)(end - c) : STEP;
      norm_product(dtype, kind, of, i, norm_weight(w, c), first + c, n, &gs, &s);
    }
    s = v2_add(s, t), gs = v2_add(gs, gt);
    sums->dot += (double)vf_sum(vf_add(s.a, s.b));
    if (norm_centers(kind)) sums->g += (double)vf_sum(vf_add(gs.a, gs.b));
  }
}

/* slab, bias_slab: sums of dy * xhat and of dy, NULL when not wanted. */
TIGON_INLINE void norm_bwd_step(tigon_dtype dtype, norm_kind kind, bool rounds, int rows, const norm_group *g, vf2 w,
                                float *slab, float *bias_slab, int64_t c, int n) {
  vf2 sum = slab ? v2_order(v2_load(slab, c, TIGON_F32, n), dtype) : v2_set(0);
  vf2 bias = bias_slab ? v2_order(v2_load(bias_slab, c, TIGON_F32, n), dtype) : v2_set(0);
  for (int i = 0; i < rows; ++i) {
    v2_prefetch(g->next_dy[i], c, dtype);
    v2_prefetch(g->next_x[i], c, dtype);
    if (g->ds[i]) v2_prefetch(g->next_ds[i], c, dtype);
    if (kind == NORM_GATED) v2_prefetch(g->next_z[i], c, dtype);
    const vf2 scale = v2_set(g->rstd[i]);
    vf2 dy = v2_load(g->dy[i], c, dtype, n), dz = dy;
    if (kind == NORM_GATED) { /* dn takes the place of dy */
      vf2 silu;
      dz = v2_mul(dy, norm_silu_slope(dtype, v2_load(g->z[i], c, dtype, n), &silu));
      dy = v2_mul(dy, silu);
    }
    vf2 v = v2_load(g->x[i], c, dtype, n), dx = v2_mul(dy, w);
    if (norm_centers(kind)) v = v2_sub(v, v2_set(g->center[i])), dx = v2_sub(dx, v2_set(g->mean_g[i]));
    const vf2 xhat = v2_mul(v, scale);
    dx = v2_mul(scale, v2_fnma(xhat, v2_set(g->mean[i]), dx));
    if (g->ds[i]) dx = v2_add(dx, v2_load(g->ds[i], c, dtype, n));
    const vf2 used = rounds ? v2_round(xhat, dtype, V_OWN) : xhat; /* by forward */
    sum = v2_fma(dy, used, sum);
    if (norm_has_bias(kind)) bias = v2_add(dy, bias);
    v2_put(g->dx[i], c, dtype, dx, n, g->stream, V_OWN);
    if (kind == NORM_GATED && g->dz[i]) v2_put(g->dz[i], c, dtype, v2_mul(dz, v2_mul(used, w)), n, g->stream, V_OWN);
  }
  if (slab) v2_put(slab, c, TIGON_F32, v2_natural(sum, dtype), n, false, V_OWN);
  if (bias_slab) v2_put(bias_slab, c, TIGON_F32, v2_natural(bias, dtype), n, false, V_OWN);
}

TIGON_INLINE void norm_bwd_sweep(tigon_dtype dtype, norm_kind kind, bool rounds, const norm_group *at,
                                 const norm_panel *panel, float *slab, float *bias_slab) {
  const norm_group g = *at;
  const float *w = panel->w;
  const int64_t cols = panel->cols, first = panel->first;
  float *const bias = norm_has_bias(kind) ? bias_slab : NULL;
  int64_t c = 0;
  if (g.rows == norm_full_group(kind))
    for (; c + STEP <= cols; c += STEP)
      norm_bwd_step(dtype, kind, rounds, norm_full_group(kind), &g, norm_weight(w, c), slab, bias, first + c, STEP);
  for (; c + STEP <= cols; c += STEP)
    norm_bwd_step(dtype, kind, rounds, g.rows, &g, norm_weight(w, c), slab, bias, first + c, STEP);
  if (c < cols)
    norm_bwd_step(dtype, kind, rounds, g.rows, &g, norm_weight(w, c), slab, bias, first + c, (int)(cols - c));
}

/* A NaN of the caller's made one that bf16 can hold. */
TIGON_INLINE float norm_statistic(const float *of, int64_t r) { return isnan(of[r]) ? NAN : of[r]; }

TIGON_INLINE norm_weights norm_bwd_weights(norm_kind kind, const tigon_norm_bwd_problem *p, int64_t r) {
  norm_weights weights = {.w = p->w, .dtype = p->w_dtype, .offset = p->w_offset, .absent = 1};
  if (kind == NORM_MODULATED) {
    weights.scale = tigon_row(&p->groups, &p->scale, tigon_dtype_size(p->scale_dtype), r / p->share);
    weights.scale_dtype = p->scale_dtype;
  }
  return weights;
}

/* What the tasks of rows, or of shares of few huge ones, need. */
typedef struct norm_bwd_cut {
  const tigon_norm_bwd_problem *p;
  split cut;
  norm_sums *parts; /* [rows, cut.parts] when rows are split */
} norm_bwd_cut;

/* The sums of columns `at` of a group's rows. */
TIGON_INLINE void norm_bwd_part(tigon_dtype dtype, norm_kind kind, const norm_group *g, const norm_weights *weights,
                                norm_panel *panel, split_range at, norm_sums sums[NORM_GROUP]) {
  for (int i = 0; i < g->rows; ++i) sums[i] = (norm_sums){0, 0};
  for (int64_t first = at.begin; first < at.end; first += NORM_PANEL) {
    norm_load_panel(panel, first, at.end, dtype, weights);
    for (int i = 0; i < g->rows; ++i) norm_bwd_sums(dtype, kind, g, i, panel, &sums[i]);
  }
}

/* Columns `at` of rows [begin, end), which share a scale and whose sums the slabs, [cols], get; `last`: the end of the task's
 * rows. */
TIGON_INLINE void norm_bwd_rows(tigon_dtype dtype, norm_kind kind, const norm_bwd_cut *b, int64_t begin, int64_t end,
                                int64_t last, split_range at, float *slab, float *bias_slab, bool stream) {
  const tigon_norm_bwd_problem *p = b->p;
  const size_t size = tigon_dtype_size(dtype);
  const bool uses = slab || (kind == NORM_GATED && p->dz.data); /* xhat as forward had it */
  const bool rounds = kind != NORM_LAYER && uses && p->casting != TIGON_CASTING_GEMMA && dtype != TIGON_F32;
  const int64_t read = kind == NORM_GATED ? 3 : 2;
  const int fits = norm_group_rows(read * p->cols * v_size(dtype)), full = norm_full_group(kind);
  const int most = fits < full ? fits : full;
  const norm_weights weights = norm_bwd_weights(kind, p, begin);
  norm_panel panel;
  panel.cols = 0;
  if (slab) memset(slab + at.begin, 0, (size_t)(at.end - at.begin) * sizeof *slab);
  if (bias_slab) memset(bias_slab + at.begin, 0, (size_t)(at.end - at.begin) * sizeof *bias_slab);
  for (int64_t r = begin; r < end; r += most) {
    norm_group g = {.rows = end - r < most ? (int)(end - r) : most, .stream = stream};
    norm_sums sums[NORM_GROUP] = {{0, 0}};
    for (int i = 0; i < g.rows; ++i) {
      g.dy[i] = tigon_row(&p->space, &p->dy, size, r + i);
      g.x[i] = tigon_row(&p->space, &p->x, size, r + i);
      g.ds[i] = tigon_row(&p->space, &p->ds, size, r + i);
      g.dx[i] = tigon_row(&p->space, &p->dx, size, r + i);
      const int64_t next = r + i + g.rows < last ? r + i + g.rows : r + i;
      g.next_dy[i] = tigon_row(&p->space, &p->dy, size, next);
      g.next_x[i] = tigon_row(&p->space, &p->x, size, next);
      g.next_ds[i] = tigon_row(&p->space, &p->ds, size, next);
      g.rstd[i] = norm_statistic(p->rstd, r + i);
      if (norm_centers(kind)) g.center[i] = norm_statistic(p->mean, r + i);
      if (kind == NORM_GATED) {
        g.z[i] = tigon_row(&p->space, &p->z, size, r + i);
        g.dz[i] = tigon_row(&p->space, &p->dz, size, r + i);
        g.next_z[i] = tigon_row(&p->space, &p->z, size, next);
        g.stream = g.stream && v2_aligned(g.dz[i]);
      }
      g.stream = g.stream && v2_aligned(g.dx[i]);
    }
    for (int64_t part = 0; part < b->cut.parts; ++part) {
      norm_sums of_part[NORM_GROUP];
      if (!b->parts) norm_bwd_part(dtype, kind, &g, &weights, &panel, split_part(&b->cut, part), of_part);
      for (int i = 0; i < g.rows; ++i) {
        const norm_sums *add = b->parts ? &b->parts[(r + i) * b->cut.parts + part] : &of_part[i];
        sums[i].g += add->g, sums[i].dot += add->dot;
      }
    }
    for (int i = 0; i < g.rows; ++i) {
      g.mean[i] = (float)(sums[i].dot / (double)p->cols * (double)g.rstd[i]);
      g.mean_g[i] = (float)(sums[i].g / (double)p->cols);
    }
    for (int64_t first = at.begin; first < at.end; first += NORM_PANEL) {
      norm_load_panel(&panel, first, at.end, dtype, &weights);
      if (rounds)
        norm_bwd_sweep(dtype, kind, true, &g, &panel, slab, bias_slab);
      else
        norm_bwd_sweep(dtype, kind, false, &g, &panel, slab, bias_slab);
    }
  }
  if (stream && end == last) vf_fence();
}

/* ---- few huge rows: tasks [rows, cut.tasks] take the sums of their parts, those of the call then store ---- */

TIGON_INLINE void norm_bwd_share(tigon_dtype dtype, norm_kind kind, const norm_bwd_cut *b, int64_t index) {
  const tigon_norm_bwd_problem *p = b->p;
  const int64_t r = index / b->cut.tasks;
  const split_range parts = split_parts(&b->cut, index % b->cut.tasks);
  const norm_weights weights = norm_bwd_weights(kind, p, r);
  norm_group g = {.rows = 1};
  g.dy[0] = tigon_row(&p->space, &p->dy, tigon_dtype_size(dtype), r);
  g.x[0] = tigon_row(&p->space, &p->x, tigon_dtype_size(dtype), r);
  g.z[0] = tigon_row(&p->space, &p->z, tigon_dtype_size(dtype), r);
  if (norm_centers(kind)) g.center[0] = norm_statistic(p->mean, r);
  norm_panel panel;
  panel.cols = 0;
  for (int64_t part = parts.begin; part < parts.end; ++part) {
    norm_sums sums[NORM_GROUP];
    norm_bwd_part(dtype, kind, &g, &weights, &panel, split_part(&b->cut, part), sums);
    b->parts[r * b->cut.parts + part] = sums[0];
  }
}
TIGON_INLINE void norm_bwd_share_task(norm_kind kind, const norm_bwd_cut *b, int64_t index) {
  TIGON_FOR_DTYPE(b->p->dtype, norm_bwd_share, kind, b, index);
}

/* The bytes of a row of all streams, and of all rows. */
static inline int64_t norm_bwd_row_bytes(const tigon_norm_bwd_problem *p) {
  return (p->z.data ? 5 : 3) * p->cols * v_size(p->dtype);
}
static inline int64_t norm_bwd_bytes(const tigon_norm_bwd_problem *p) { return p->space.rows * norm_bwd_row_bytes(p); }

/* Slabs are [ranges, sums, cols]. */
static inline int64_t norm_bwd_ranges(const tigon_norm_bwd_problem *p) {
  return tigon_slabs(p->space.rows, TIGON_CPU_TASKS);
}

/* How the call's rows are split, and their sums if they are; `task` calls norm_bwd_share_task() with the kind. */
TIGON_INLINE norm_bwd_cut norm_bwd_split(const tigon_queue *queue, const tigon_norm_bwd_problem *p,
                                         norm_sums parts[SPLIT_CELLS],
                                         void (*task)(const void *argument, int64_t index)) {
  const split cut = split_of(queue, p->space.rows, p->cols, norm_bwd_row_bytes(p));
  const norm_bwd_cut b = {p, cut, cut.tasks > 1 ? parts : NULL};
  tigon_cpu_note(queue, cut.tasks, p->slabs ? norm_bwd_ranges(p) : 0);
  if (b.parts) tigon_cpu_parallel(queue, p->space.rows * cut.tasks, task, &b);
  return b;
}

#endif
