/* The rows of rms_norm and fused_add_rms_norm: one body, expanded by both files. Two sweeps over a row: the second one
 * reads it from the cache. Sums are f32 within a block of columns and f64 across blocks, so that a row of any width keeps
 * its precision and its bits do not depend on its neighbours. The weights of a panel of columns are widened once and serve
 * all rows of a task; where a row has several panels, a group of rows shares each. */
#ifndef TIGON_CPU_RMS_NORM_H
#define TIGON_CPU_RMS_NORM_H

#include <math.h>
#include <string.h>

#include "cpu/kernels.h"
#include "cpu/pair.h"

enum {
  NORM_BLOCK = 256 * LANES,   /* columns of one f32 partial sum: at most 128 additions in a row */
  NORM_PANEL = 8192,          /* columns whose weights are at hand, a multiple of STEP */
  NORM_GROUP = 4,             /* rows that share a panel's weights, or a sweep over dw's slab */
  NORM_GROUP_BYTES = 1 << 19, /* of a group's inputs: the L2 has the next group's, too */
};

/* Rows of a group: as many as the L2 keeps between two sweeps. */
TIGON_INLINE int norm_group_rows(int64_t row_bytes) {
  const int64_t fits = NORM_GROUP_BYTES / row_bytes;
  return fits >= NORM_GROUP ? NORM_GROUP : fits > 1 ? (int)fits : 1;
}

/* w + w_offset of the columns from `first`, 1 without w, in the order of the dtype's pairs. A NaN is one that bf16 can
 * hold; the last step is filled up with anything. */
typedef struct norm_panel {
  int64_t first, cols; /* cols 0: nothing yet */
  const float *w;      /* the buffer, or the caller's w where that is the same */
  float buffer[NORM_PANEL];
} norm_panel;

/* n weights from w; `dtype` is that of the rows. */
TIGON_INLINE void norm_widen(float *to, tigon_dtype dtype, tigon_dtype w_dtype, const void *w, int64_t c, int n,
                             float w_offset) {
  vf2 v = v2_load(w, c, w_dtype, n);
  v = v2_add(w_dtype == dtype ? v : v2_order(v, dtype), v2_set(w_offset));
  vf_store(to, vf_select(vf_nan(v.a), vf_set(NAN), v.a));
  vf_store(to + LANES, vf_select(vf_nan(v.b), vf_set(NAN), v.b));
}
TIGON_INLINE void norm_widen_all(float *to, tigon_dtype dtype, tigon_dtype w_dtype, const void *w, int64_t first,
                                 int64_t n, float w_offset) {
  int64_t c = 0;
  for (; c + STEP <= n; c += STEP) norm_widen(to + c, dtype, w_dtype, w, first + c, STEP, w_offset);
  if (c < n) norm_widen(to + c, dtype, w_dtype, w, first + c, (int)(n - c), w_offset);
}

TIGON_INLINE void norm_load_panel(norm_panel *panel, int64_t first, int64_t cols, tigon_dtype dtype,
                                  tigon_dtype w_dtype, const void *w, float w_offset) {
  if (panel->cols && panel->first == first) return;
  panel->first = first, panel->cols = cols - first < NORM_PANEL ? cols - first : NORM_PANEL;
  panel->w = panel->buffer;
  if (!w)
    for (int64_t c = 0; c < panel->cols; c += STEP) {
      vf_store(panel->buffer + c, vf_set(1.0f));
      vf_store(panel->buffer + c + LANES, vf_set(1.0f));
    }
  else if (dtype == TIGON_F32 && w_offset == 0 && panel->cols % STEP == 0)
    panel->w = (const float *)w + first;
  else if (w_dtype == TIGON_F32)
    norm_widen_all(panel->buffer, dtype, TIGON_F32, w, first, panel->cols, w_offset);
  else
    norm_widen_all(panel->buffer, dtype, dtype, w, first, panel->cols, w_offset);
}
TIGON_INLINE vf2 norm_weight(const float *w, int64_t c) { return (vf2){vf_load(w + c), vf_load(w + c + LANES)}; }

TIGON_INLINE vf2 norm_input(tigon_dtype dtype, const void *x, const void *residual, int64_t c, int n) {
  const vf2 v = v2_load(x, c, dtype, n);
  return residual ? v2_round(v2_add(v, v2_load(residual, c, dtype, n)), dtype, true) : v;
}

TIGON_INLINE double norm_sum_squares(tigon_dtype dtype, const void *x, const void *residual, int64_t cols) {
  double sum = 0;
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    vf2 s = v2_set(0), t = v2_set(0);
    int64_t c = block;
    for (; c + 2 * STEP <= end; c += 2 * STEP) {
      const vf2 a = norm_input(dtype, x, residual, c, STEP), b = norm_input(dtype, x, residual, c + STEP, STEP);
      s = v2_fma(a, a, s), t = v2_fma(b, b, t);
    }
    for (; c < end; c += STEP) {
      const vf2 a = norm_input(dtype, x, residual, c, end - c < STEP ? (int)(end - c) : STEP);
      s = v2_fma(a, a, s);
    }
    s = v2_add(s, t);
    sum += (double)vf_sum(vf_add(s.a, s.b));
  }
  return sum;
}

/* ---- forward ---- */

/* One row of each tensor, and the inputs of the row after it in the sweep's order. */
typedef struct norm_row {
  const char *x, *residual; /* residual, s: NULL without a fused add */
  char *s, *y;
  const char *next_x, *next_residual; /* on their way into the cache while this row is stored */
  float rstd;
  bool stream;
} norm_row;

TIGON_INLINE void norm_fwd_step(tigon_dtype dtype, bool rounds, bool stream, const norm_row *row, vf2 w, int64_t c,
                                int n) {
  v2_prefetch(row->next_x, c, dtype);
  if (row->residual) v2_prefetch(row->next_residual, c, dtype);
  const vf2 v = norm_input(dtype, row->x, row->residual, c, n);
  if (row->s) v2_put(row->s, c, dtype, v, n, stream, true);
  vf2 xhat = v2_mul(v, v2_set(row->rstd));
  if (rounds) xhat = v2_round(xhat, dtype, true);
  v2_put(row->y, c, dtype, v2_mul(xhat, w), n, stream, true);
}

TIGON_INLINE void norm_fwd_sweep(tigon_dtype dtype, bool rounds, bool stream, const norm_row *at,
                                 const norm_panel *panel) {
  const norm_row row = *at;
  const float *w = panel->w;
  const int64_t cols = panel->cols, first = panel->first;
  int64_t c = 0;
  for (; c + STEP <= cols; c += STEP) norm_fwd_step(dtype, rounds, stream, &row, norm_weight(w, c), first + c, STEP);
  if (c < cols) norm_fwd_step(dtype, rounds, false, &row, norm_weight(w, c), first + c, (int)(cols - c));
}

TIGON_INLINE void norm_fwd_row(tigon_dtype dtype, bool fused, const tigon_rms_norm_fwd_problem *p, int64_t r,
                               int64_t next, bool stream, norm_row *row) {
  const size_t size = tigon_dtype_size(dtype);
  *row = (norm_row){
      .x = tigon_row(&p->space, &p->x, size, r),
      .residual = fused ? tigon_row(&p->space, &p->residual, size, r) : NULL,
      .s = fused ? tigon_row(&p->space, &p->s, size, r) : NULL,
      .y = tigon_row(&p->space, &p->y, size, r),
      .next_x = tigon_row(&p->space, &p->x, size, next),
      .next_residual = fused ? tigon_row(&p->space, &p->residual, size, next) : NULL,
  };
  row->stream = stream && v2_aligned(row->y) && (!fused || v2_aligned(row->s));
  float mean = (float)(norm_sum_squares(dtype, row->x, row->residual, p->cols) / (double)p->cols);
  if (p->casting == TIGON_CASTING_NONE) mean = tigon_round_f32(mean, dtype);
  row->rstd = 1.0f / sqrtf(mean + p->eps);
  if (p->casting == TIGON_CASTING_NONE) row->rstd = tigon_round_f32(row->rstd, dtype);
  if (p->rstd) p->rstd[r] = row->rstd;
}

TIGON_INLINE void norm_fwd_rows(tigon_dtype dtype, bool fused, const tigon_rms_norm_fwd_problem *p, int64_t begin,
                                int64_t end, bool stream) {
  const bool rounds = p->casting != TIGON_CASTING_GEMMA && dtype != TIGON_F32;
  const int64_t row_bytes = (fused ? 2 : 1) * p->cols * v_size(dtype);
  const int most = p->cols <= NORM_PANEL ? 1 : norm_group_rows(row_bytes);
  norm_panel panel;
  panel.cols = 0;
  for (int64_t r = begin; r < end; r += most) {
    const int rows = end - r < most ? (int)(end - r) : most;
    norm_row row[NORM_GROUP];
    for (int i = 0; i < rows; ++i)
      norm_fwd_row(dtype, fused, p, r + i, r + i + rows < end ? r + i + rows : r + i, stream, &row[i]);
    for (int64_t first = 0; first < p->cols; first += NORM_PANEL) {
      norm_load_panel(&panel, first, p->cols, dtype, p->w_dtype, p->w, p->w_offset);
      for (int i = 0; i < rows; ++i)
        if (rounds && row[i].stream)
          norm_fwd_sweep(dtype, true, true, &row[i], &panel);
        else if (rounds)
          norm_fwd_sweep(dtype, true, false, &row[i], &panel);
        else if (row[i].stream)
          norm_fwd_sweep(dtype, false, true, &row[i], &panel);
        else
          norm_fwd_sweep(dtype, false, false, &row[i], &panel);
    }
  }
  if (stream) vf_fence();
}

/* ---- backward ---- */

/* Up to NORM_GROUP rows that share a sweep, and the inputs of those that come next. */
typedef struct norm_group {
  int rows;
  bool stream;
  const char *dy[NORM_GROUP], *x[NORM_GROUP], *ds[NORM_GROUP]; /* ds: NULL without */
  char *dx[NORM_GROUP];
  const char *next_dy[NORM_GROUP], *next_x[NORM_GROUP], *next_ds[NORM_GROUP];
  float rstd[NORM_GROUP], mean[NORM_GROUP]; /* mean: of g * xhat */
} norm_group;

/* sum over the panel of g * x, g = dy * (w + w_offset). */
TIGON_INLINE vf2 norm_product(tigon_dtype dtype, const void *dy, const void *x, vf2 w, int64_t c, int n, vf2 sum) {
  return v2_fma(v2_mul(v2_load(dy, c, dtype, n), w), v2_load(x, c, dtype, n), sum);
}
TIGON_INLINE double norm_dot(tigon_dtype dtype, const void *dy, const void *x, const norm_panel *panel) {
  const float *w = panel->w;
  const int64_t cols = panel->cols, first = panel->first;
  double sum = 0;
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    vf2 s = v2_set(0), t = v2_set(0);
    int64_t c = block;
    for (; c + 2 * STEP <= end; c += 2 * STEP) {
      s = norm_product(dtype, dy, x, norm_weight(w, c), first + c, STEP, s);
      t = norm_product(dtype, dy, x, norm_weight(w, c + STEP), first + c + STEP, STEP, t);
    }
    for (; c < end; c += STEP) {
      const int n = end - c < STEP ? (int)(end - c) : STEP;
      s = norm_product(dtype, dy, x, norm_weight(w, c), first + c, n, s);
    }
    s = v2_add(s, t);
    sum += (double)vf_sum(vf_add(s.a, s.b));
  }
  return sum;
}

TIGON_INLINE void norm_bwd_step(tigon_dtype dtype, bool rounds, int rows, const norm_group *g, vf2 w, float *slab,
                                int64_t c, int n) {
  vf2 sum = slab ? v2_order(v2_load(slab, c, TIGON_F32, n), dtype) : v2_set(0);
  for (int i = 0; i < rows; ++i) {
    v2_prefetch(g->next_dy[i], c, dtype);
    v2_prefetch(g->next_x[i], c, dtype);
    if (g->ds[i]) v2_prefetch(g->next_ds[i], c, dtype);
    const vf2 dy = v2_load(g->dy[i], c, dtype, n), scale = v2_set(g->rstd[i]);
    const vf2 xhat = v2_mul(v2_load(g->x[i], c, dtype, n), scale);
    vf2 dx = v2_mul(scale, v2_fnma(xhat, v2_set(g->mean[i]), v2_mul(dy, w)));
    if (g->ds[i]) dx = v2_add(dx, v2_load(g->ds[i], c, dtype, n));
    sum = v2_fma(dy, rounds ? v2_round(xhat, dtype, true) : xhat, sum);
    v2_put(g->dx[i], c, dtype, dx, n, g->stream, true);
  }
  if (slab) v2_put(slab, c, TIGON_F32, v2_natural(sum, dtype), n, false, true);
}

/* `slab` [cols] gets the rows' share of dw, NULL without dw. */
TIGON_INLINE void norm_bwd_sweep(tigon_dtype dtype, bool rounds, const norm_group *at, const norm_panel *panel,
                                 float *slab) {
  const norm_group g = *at;
  const float *w = panel->w;
  const int64_t cols = panel->cols, first = panel->first;
  int64_t c = 0;
  if (g.rows == NORM_GROUP)
    for (; c + STEP <= cols; c += STEP)
      norm_bwd_step(dtype, rounds, NORM_GROUP, &g, norm_weight(w, c), slab, first + c, STEP);
  for (; c + STEP <= cols; c += STEP)
    norm_bwd_step(dtype, rounds, g.rows, &g, norm_weight(w, c), slab, first + c, STEP);
  if (c < cols) norm_bwd_step(dtype, rounds, g.rows, &g, norm_weight(w, c), slab, first + c, (int)(cols - c));
}

/* Rows [begin, end) of one slab. */
TIGON_INLINE void norm_bwd_rows(tigon_dtype dtype, const tigon_rms_norm_bwd_problem *p, int64_t begin, int64_t end,
                                float *slab, bool stream) {
  const size_t size = tigon_dtype_size(dtype);
  const bool rounds = slab && p->casting != TIGON_CASTING_GEMMA && dtype != TIGON_F32;
  const int most = norm_group_rows(2 * p->cols * v_size(dtype));
  norm_panel panel;
  panel.cols = 0;
  if (slab) memset(slab, 0, (size_t)p->cols * sizeof *slab);
  for (int64_t r = begin; r < end; r += most) {
    norm_group g = {.rows = end - r < most ? (int)(end - r) : most, .stream = stream};
    double dot[NORM_GROUP] = {0};
    for (int i = 0; i < g.rows; ++i) {
      g.dy[i] = tigon_row(&p->space, &p->dy, size, r + i);
      g.x[i] = tigon_row(&p->space, &p->x, size, r + i);
      g.ds[i] = tigon_row(&p->space, &p->ds, size, r + i);
      g.dx[i] = tigon_row(&p->space, &p->dx, size, r + i);
      const int64_t next = r + i + most < end ? r + i + most : r + i;
      g.next_dy[i] = tigon_row(&p->space, &p->dy, size, next);
      g.next_x[i] = tigon_row(&p->space, &p->x, size, next);
      g.next_ds[i] = tigon_row(&p->space, &p->ds, size, next);
      g.rstd[i] = isnan(p->rstd[r + i]) ? NAN : p->rstd[r + i];
      g.stream = g.stream && v2_aligned(g.dx[i]);
    }
    for (int64_t first = 0; first < p->cols; first += NORM_PANEL) {
      norm_load_panel(&panel, first, p->cols, dtype, p->w_dtype, p->w, p->w_offset);
      for (int i = 0; i < g.rows; ++i) dot[i] += norm_dot(dtype, g.dy[i], g.x[i], &panel);
    }
    for (int i = 0; i < g.rows; ++i) g.mean[i] = (float)(dot[i] / (double)p->cols * (double)g.rstd[i]);
    for (int64_t first = 0; first < p->cols; first += NORM_PANEL) {
      norm_load_panel(&panel, first, p->cols, dtype, p->w_dtype, p->w, p->w_offset);
      if (rounds)
        norm_bwd_sweep(dtype, true, &g, &panel, slab);
      else
        norm_bwd_sweep(dtype, false, &g, &panel, slab);
    }
  }
  if (stream) vf_fence();
}

#endif
