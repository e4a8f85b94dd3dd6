/* The rows of rms_norm and fused_add_rms_norm: one body, expanded by both files. Two sweeps over a row: the second one
 * reads it from the cache. Sums are f32 within a block of columns and f64 across blocks, so that a row of any width keeps
 * its precision and its bits do not depend on its neighbours. */
#ifndef TIGON_CPU_RMS_NORM_H
#define TIGON_CPU_RMS_NORM_H

#include <string.h>

#include "cpu/kernels.h"

enum { NORM_BLOCK = 256 * LANES }; /* columns of one f32 partial sum: at most 256 additions in a row */

/* w + w_offset for the n lanes at c; 1 without w. */
TIGON_INLINE vf norm_weight(const void *w, tigon_dtype w_dtype, int64_t c, int n, float w_offset) {
  if (!w) return vf_set(1.0f);
  const vf v = n == LANES ? v_load(w, c, w_dtype) : v_load_n(w, c, w_dtype, n);
  return vf_add(v, vf_set(w_offset));
}

/* Lanes of the vector at c. */
TIGON_INLINE int norm_lanes(int64_t cols, int64_t c) { return cols - c >= LANES ? LANES : (int)(cols - c); }

TIGON_INLINE vf norm_input(tigon_dtype dtype, const void *x, const void *residual, int64_t c, int n) {
  const vf v = n == LANES ? v_load(x, c, dtype) : v_load_n(x, c, dtype, n);
  if (!residual) return v;
  return v_round(vf_add(v, n == LANES ? v_load(residual, c, dtype) : v_load_n(residual, c, dtype, n)), dtype);
}

TIGON_INLINE double norm_sum_squares(tigon_dtype dtype, const void *x, const void *residual, int64_t cols) {
  double sum = 0;
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    vf s0 = vf_zero(), s1 = vf_zero(), s2 = vf_zero(), s3 = vf_zero();
    int64_t c = block;
    for (; c + 4 * LANES <= end; c += 4 * LANES) {
      const vf a = norm_input(dtype, x, residual, c, LANES), b = norm_input(dtype, x, residual, c + LANES, LANES);
      const vf d = norm_input(dtype, x, residual, c + 2 * LANES, LANES);
      const vf e = norm_input(dtype, x, residual, c + 3 * LANES, LANES);
      s0 = vf_fma(a, a, s0), s1 = vf_fma(b, b, s1), s2 = vf_fma(d, d, s2), s3 = vf_fma(e, e, s3);
    }
    for (; c < end; c += LANES) {
      const vf a = norm_input(dtype, x, residual, c, norm_lanes(end, c));
      s0 = vf_fma(a, a, s0);
    }
    sum += (double)vf_sum(vf_add(vf_add(s0, s1), vf_add(s2, s3)));
  }
  return sum;
}

TIGON_INLINE void norm_store(void *out, int64_t c, tigon_dtype dtype, vf v, int n, bool stream) {
  if (n == LANES)
    v_put(out, c, dtype, v, stream);
  else
    v_store_n(out, c, dtype, v, n);
}

/* What the second sweep of forward walks: one row of each tensor, and the next row's inputs. */
typedef struct norm_row {
  const char *x, *residual; /* residual, s: NULL without a fused add */
  char *s, *y;
  const char *next_x, *next_residual; /* on their way into the cache while this row is stored */
} norm_row;

/* w_dtype NONE: no weight. `rounds`: xhat is rounded to the dtype before the weight. Both are constants, as dtype is. */
TIGON_INLINE void norm_fwd_sweep(tigon_dtype dtype, tigon_dtype w_dtype, bool rounds,
                                 const tigon_rms_norm_fwd_problem *p, const norm_row *row, float rstd, bool stream) {
  const int64_t size = (int64_t)tigon_dtype_size(dtype), line = 64 / size;
  const void *w = w_dtype == TIGON_DTYPE_NONE ? NULL : p->w;
  const vf scale = vf_set(rstd);
  for (int64_t c = 0; c < p->cols; c += LANES) {
    const int n = norm_lanes(p->cols, c);
    if (c % line == 0) {
      vf_prefetch(row->next_x + c * size);
      if (row->residual) vf_prefetch(row->next_residual + c * size);
    }
    const vf v = norm_input(dtype, row->x, row->residual, c, n);
    if (row->s) norm_store(row->s, c, dtype, v, n, stream);
    vf xhat = vf_mul(v, scale);
    if (rounds) xhat = v_round(xhat, dtype);
    norm_store(row->y, c, dtype, vf_mul(xhat, norm_weight(w, w_dtype, c, n, p->w_offset)), n, stream);
  }
}

TIGON_INLINE void norm_fwd_rows(tigon_dtype dtype, bool fused, const tigon_rms_norm_fwd_problem *p, int64_t begin,
                                int64_t end, bool stream_call) {
  const size_t size = tigon_dtype_size(dtype);
  const bool rounds = p->casting != TIGON_CASTING_GEMMA && dtype != TIGON_F32;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t next = r + 1 < end ? r + 1 : r;
    const norm_row row = {
        .x = tigon_row(&p->space, &p->x, size, r),
        .residual = fused ? tigon_row(&p->space, &p->residual, size, r) : NULL,
        .s = fused ? tigon_row(&p->space, &p->s, size, r) : NULL,
        .y = tigon_row(&p->space, &p->y, size, r),
        .next_x = tigon_row(&p->space, &p->x, size, next),
        .next_residual = fused ? tigon_row(&p->space, &p->residual, size, next) : NULL,
    };
    float mean = (float)(norm_sum_squares(dtype, row.x, row.residual, p->cols) / (double)p->cols);
    if (p->casting == TIGON_CASTING_NONE) mean = tigon_round_f32(mean, dtype);
    float rstd = 1.0f / sqrtf(mean + p->eps);
    if (p->casting == TIGON_CASTING_NONE) rstd = tigon_round_f32(rstd, dtype);
    if (p->rstd) p->rstd[r] = rstd;
    const bool stream = stream_call && v_aligned(row.y, dtype) && (!fused || v_aligned(row.s, dtype));
    if (!p->w && rounds)
      norm_fwd_sweep(dtype, TIGON_DTYPE_NONE, true, p, &row, rstd, stream);
    else if (!p->w)
      norm_fwd_sweep(dtype, TIGON_DTYPE_NONE, false, p, &row, rstd, stream);
    else if (p->w_dtype == TIGON_F32 && rounds)
      norm_fwd_sweep(dtype, TIGON_F32, true, p, &row, rstd, stream);
    else if (p->w_dtype == TIGON_F32)
      norm_fwd_sweep(dtype, TIGON_F32, false, p, &row, rstd, stream);
    else if (rounds)
      norm_fwd_sweep(dtype, dtype, true, p, &row, rstd, stream);
    else
      norm_fwd_sweep(dtype, dtype, false, p, &row, rstd, stream);
  }
  if (stream_call) vf_fence();
}

/* sum over the row of g * x, g = dy * (w + w_offset). */
TIGON_INLINE double norm_dot(tigon_dtype dtype, const tigon_rms_norm_bwd_problem *p, const void *dy, const void *x) {
  double sum = 0;
  for (int64_t block = 0; block < p->cols; block += NORM_BLOCK) {
    const int64_t end = p->cols - block < NORM_BLOCK ? p->cols : block + NORM_BLOCK;
    vf s0 = vf_zero(), s1 = vf_zero();
    int64_t c = block;
    for (; c + 2 * LANES <= end; c += 2 * LANES) {
      const vf g0 = vf_mul(v_load(dy, c, dtype), norm_weight(p->w, p->w_dtype, c, LANES, p->w_offset));
      const vf g1 = vf_mul(v_load(dy, c + LANES, dtype), norm_weight(p->w, p->w_dtype, c + LANES, LANES, p->w_offset));
      s0 = vf_fma(g0, v_load(x, c, dtype), s0), s1 = vf_fma(g1, v_load(x, c + LANES, dtype), s1);
    }
    for (; c < end; c += LANES) {
      const int n = norm_lanes(end, c);
      const vf g = vf_mul(v_load_n(dy, c, dtype, n), norm_weight(p->w, p->w_dtype, c, n, p->w_offset));
      s0 = vf_fma(g, v_load_n(x, c, dtype, n), s0);
    }
    sum += (double)vf_sum(vf_add(s0, s1));
  }
  return sum;
}

/* Rows [begin, end) of one slab; `slab` [cols] gets their share of dw, NULL without dw. */
TIGON_INLINE void norm_bwd_rows(tigon_dtype dtype, const tigon_rms_norm_bwd_problem *p, int64_t begin, int64_t end,
                                float *slab, bool stream_call) {
  const size_t size = tigon_dtype_size(dtype);
  const int64_t cols = p->cols, line = 64 / (int64_t)size;
  if (slab) memset(slab, 0, (size_t)cols * sizeof *slab);
  for (int64_t r = begin; r < end; ++r) {
    const char *dy = tigon_row(&p->space, &p->dy, size, r), *x = tigon_row(&p->space, &p->x, size, r);
    const char *ds = tigon_row(&p->space, &p->ds, size, r);
    char *dx = tigon_row(&p->space, &p->dx, size, r);
    const int64_t next = r + 1 < end ? r + 1 : r;
    const char *next_dy = tigon_row(&p->space, &p->dy, size, next), *next_x = tigon_row(&p->space, &p->x, size, next);
    const float rstd = p->rstd[r];
    const vf scale = vf_set(rstd);
    /* mean(g * xhat) */
    const vf mean = vf_set((float)(norm_dot(dtype, p, dy, x) / (double)cols * (double)rstd));
    const bool stream = stream_call && v_aligned(dx, dtype);
    for (int64_t c = 0; c < cols; c += LANES) {
      const int n = norm_lanes(cols, c);
      if (c % line == 0) {
        vf_prefetch(next_dy + c * (int64_t)size);
        vf_prefetch(next_x + c * (int64_t)size);
      }
      const vf v = v_load_n(x, c, dtype, n), d = v_load_n(dy, c, dtype, n);
      const vf xhat = vf_mul(v, scale), g = vf_mul(d, norm_weight(p->w, p->w_dtype, c, n, p->w_offset));
      vf out = vf_mul(scale, vf_fnma(xhat, mean, g));
      if (ds) out = vf_add(out, v_load_n(ds, c, dtype, n));
      if (slab) {
        const vf rounded = p->casting == TIGON_CASTING_GEMMA ? xhat : v_round(xhat, dtype);
        vf_store_n(slab + c, vf_fma(d, rounded, vf_load_n(slab + c, n)), n);
      }
      norm_store(dx, c, dtype, out, n, stream);
    }
  }
  if (stream_call) vf_fence();
}

#endif
