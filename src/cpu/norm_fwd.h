/* Rows of the norms forward: one body, expanded by the file of each op. Sweeps for the statistics first, then one that
 * stores, which reads the row from the cache. */
#ifndef TIGON_CPU_NORM_FWD_H
#define TIGON_CPU_NORM_FWD_H

#include "cpu/norm.h"

/* ---- statistics ---- */

TIGON_INLINE vf2 norm_input(tigon_dtype dtype, const void *x, const void *residual, int64_t c, int n, v_values are) {
  const vf2 v = v2_load(x, c, dtype, n);
  return residual ? v2_round(v2_add(v, v2_load(residual, c, dtype, n)), dtype, are) : v;
}

/* Of full steps: the other elements of a row are put with more care. */
TIGON_INLINE v_least norm_least(v_least l, tigon_dtype dtype, const void *x, const void *residual, int64_t c) {
  if (dtype != TIGON_BF16) return l;
  l = v_least_bf16(l, (const uint16_t *)x + c);
  return residual ? v_least_bf16(l, (const uint16_t *)residual + c) : l;
}

/* *least, where that is asked for: the least magnitude that is not 0 of the inputs of full steps. In the sum a denormal is as
 * good as 0. */
TIGON_INLINE double norm_sum_squares(tigon_dtype dtype, const void *x, const void *residual, int64_t cols,
                                     float *least) {
  double sum = 0;
  v_least l = v_least_none();
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    vf2 s = v2_set(0), t = v2_set(0);
    int64_t c = block;
    for (; c + 2 * STEP <= end; c += 2 * STEP) {
      const vf2 a = norm_input(dtype, x, residual, c, STEP, V_NORMAL);
      const vf2 b = norm_input(dtype, x, residual, c + STEP, STEP, V_NORMAL);
      s = v2_fma(a, a, s), t = v2_fma(b, b, t);
      if (least) l = norm_least(norm_least(l, dtype, x, residual, c), dtype, x, residual, c + STEP);
    }
    for (; c < end; c += STEP) {
      const int n = end - c < STEP ? (int)(end - c) : STEP;
      const vf2 a = norm_input(dtype, x, residual, c, n, V_NORMAL);
      s = v2_fma(a, a, s);
      if (least && n == STEP) l = norm_least(l, dtype, x, residual, c);
    }
    s = v2_add(s, t);
    sum += (double)vf_sum(vf_add(s.a, s.b));
  }
  if (least) *least = v_least_value(l);
  return sum;
}

/* 32 ones, then zeros: from 32 - n on it is n ones. STEP is 32 at most. */
static const float norm_ones[64] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};

/* x - center of up to STEP elements; 0 in the lanes without one. */
TIGON_INLINE vf2 norm_difference(tigon_dtype dtype, const void *x, vf2 center, int64_t c, int n) {
  const vf2 d = v2_sub(v2_load(x, c, dtype, n), center);
  if (n == STEP) return d;
  return v2_mul(d, v2_order(v2_load(norm_ones, 32 - n, TIGON_F32, STEP), dtype));
}

/* Sum of x - center over columns [c, end), and of its square. */
TIGON_INLINE double norm_sum_differences(tigon_dtype dtype, const void *x, float center, int64_t c, int64_t end,
                                         double *squares) {
  const vf2 m = v2_set(center);
  vf2 s = v2_set(0), t = v2_set(0), ss = v2_set(0), tt = v2_set(0);
  for (; c + 2 * STEP <= end; c += 2 * STEP) {
    const vf2 a = norm_difference(dtype, x, m, c, STEP), b = norm_difference(dtype, x, m, c + STEP, STEP);
    s = v2_add(a, s), t = v2_add(b, t);
    ss = v2_fma(a, a, ss), tt = v2_fma(b, b, tt);
  }
  for (; c < end; c += STEP) {
    const vf2 a = norm_difference(dtype, x, m, c, end - c < STEP ? (int)(end - c) : STEP);
    s = v2_add(a, s), ss = v2_fma(a, a, ss);
  }
  s = v2_add(s, t), ss = v2_add(ss, tt);
  *squares = (double)vf_sum(vf_add(ss.a, ss.b));
  return (double)vf_sum(vf_add(s.a, s.b));
}

/* The mean, and the mean of squared differences from it. A block's sums are of differences from a center, the mean of its
 * first columns: sum(d^2) - sum(d)^2 / n loses next to nothing while the center is well within a standard deviation of the
 * mean. Where it is not, the sums are taken again about the mean that they gave. Blocks are joined in f64. After Chan, Golub &
 * LeVeque 1983, doi:10.1080/00031305.1983.10483115. */
TIGON_INLINE double norm_moments(tigon_dtype dtype, const void *x, int64_t cols, double *variance) {
  double sum = 0, about_mean = 0; /* of x, of (x - mean)^2, over the columns before `block` */
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    const int64_t sample = end - block < NORM_SAMPLE ? end : block + NORM_SAMPLE;
    const double n = (double)(end - block), before = (double)block;
    const float first = s_load(x, block, dtype), pivot = isfinite(first) ? first : 0;
    double squares, rest = norm_sum_differences(dtype, x, pivot, block, sample, &squares);
    float center = (float)((double)pivot + rest / (double)(sample - block));
    rest = norm_sum_differences(dtype, x, center, block, end, &squares);
    if (5 * rest * rest > squares * n) {
      center = (float)((double)center + rest / n);
      rest = norm_sum_differences(dtype, x, center, block, end, &squares);
    }
    about_mean += squares - rest * rest / n;
    /* Of an Inf, a NaN or both the plain sum is what the mean must be. */
    if (!isfinite(center)) center = 0, rest = norm_sum_differences(dtype, x, 0, block, end, &squares);
    const double block_sum = (double)center * n + rest;
    if (block) {
      const double step = block_sum / n - sum / before;
      about_mean += step * step * before * n / (before + n);
    }
    sum += block_sum;
  }
  *variance = (about_mean < 0 ? 0 : about_mean) / (double)cols;
  return sum / (double)cols;
}

/* ---- rows ---- */

/* One row of each tensor, and the inputs of the row after it in the sweep's order. */
typedef struct norm_row {
  const char *x, *residual; /* residual, s: NULL without a fused add */
  char *s, *y;
  const char *next_x, *next_residual; /* on their way into the cache while this row is stored */
  float rstd, least;
  float center, rest; /* xhat = (x - center) * rstd + rest: the mean is center + what f32 cuts off */
  bool stream;
} norm_row;

TIGON_INLINE void norm_fwd_step(tigon_dtype dtype, norm_kind kind, bool rounds, bool stream, v_values are,
                                const norm_row *row, vf2 w, vf2 b, int64_t c, int n) {
  const bool fused = kind == NORM_ADD_RMS;
  v2_prefetch(row->next_x, c, dtype);
  if (fused) v2_prefetch(row->next_residual, c, dtype);
  const vf2 v = norm_input(dtype, row->x, fused ? row->residual : NULL, c, n, are), rstd = v2_set(row->rstd);
  if (fused) v2_put(row->s, c, dtype, v, n, stream, are);
  vf2 xhat = norm_centers(kind) ? v2_fma(v2_sub(v, v2_set(row->center)), rstd, v2_set(row->rest)) : v2_mul(v, rstd);
  if (rounds) xhat = v2_round(xhat, dtype, are);
  v2_put(row->y, c, dtype, norm_has_bias(kind) ? v2_fma(xhat, w, b) : v2_mul(xhat, w), n, stream, are);
}

TIGON_INLINE void norm_fwd_sweep(tigon_dtype dtype, norm_kind kind, bool rounds, bool stream, v_values are,
                                 const norm_row *at, const norm_panel *weights, const norm_panel *bias) {
  const norm_row row = *at;
  const float *w = weights->w, *b = norm_has_bias(kind) ? bias->w : w;
  const int64_t cols = weights->cols, first = weights->first;
  int64_t c = 0;
  for (; c + STEP <= cols; c += STEP)
    norm_fwd_step(dtype, kind, rounds, stream, are, &row, norm_weight(w, c), norm_weight(b, c), first + c, STEP);
  if (c < cols)
    norm_fwd_step(dtype, kind, rounds, false, V_OWN, &row, norm_weight(w, c), norm_weight(b, c), first + c,
                  (int)(cols - c));
}

/* Is nothing that the sweep rounds denormal? A sum of x and residual is a multiple of the lesser one's last bit, 2^-7 of it at
 * least; rounding takes less than half of anything. */
TIGON_INLINE bool norm_is_normal(tigon_dtype dtype, norm_kind kind, const norm_row *row, norm_panel *weights) {
  if (!V_FLUSHES || dtype != TIGON_BF16 || norm_has_bias(kind)) return false;
  const float least = kind == NORM_ADD_RMS ? row->least * 0x1p-8f : row->least, xhat = least * row->rstd;
  return least >= 0x1p-125f && xhat >= 0x1p-125f && xhat * norm_panel_least(weights) >= 0x1p-124f;
}

TIGON_INLINE void norm_fwd_put(tigon_dtype dtype, norm_kind kind, bool rounds, const norm_row *row, norm_panel *w,
                               const norm_panel *b) {
  const bool normal = norm_is_normal(dtype, kind, row, w);
  if (normal && row->stream)
    norm_fwd_sweep(dtype, kind, rounds, true, V_NORMAL, row, w, b);
  else if (normal)
    norm_fwd_sweep(dtype, kind, rounds, false, V_NORMAL, row, w, b);
  else if (row->stream)
    norm_fwd_sweep(dtype, kind, rounds, true, V_OWN, row, w, b);
  else
    norm_fwd_sweep(dtype, kind, rounds, false, V_OWN, row, w, b);
}

TIGON_INLINE void norm_statistics(tigon_dtype dtype, norm_kind kind, const tigon_norm_fwd_problem *p, norm_row *row) {
  if (kind == NORM_LAYER) {
    double variance;
    const double mean = norm_moments(dtype, row->x, p->cols, &variance);
    row->rstd = (float)(1 / sqrt(variance + (double)p->eps));
    row->center = (float)mean;
    row->rest = (float)((double)row->center - mean) * row->rstd;
    return;
  }
  float mean = (float)(norm_sum_squares(dtype, row->x, kind == NORM_ADD_RMS ? row->residual : NULL, p->cols,
                                        V_FLUSHES && !norm_has_bias(kind) ? &row->least : NULL) /
                       (double)p->cols);
  if (p->casting == TIGON_CASTING_NONE) mean = tigon_round_f32(mean, dtype);
  row->rstd = 1.0f / sqrtf(mean + p->eps);
  if (p->casting == TIGON_CASTING_NONE) row->rstd = tigon_round_f32(row->rstd, dtype);
}

TIGON_INLINE void norm_fwd_row(tigon_dtype dtype, norm_kind kind, const tigon_norm_fwd_problem *p, int64_t r,
                               int64_t next, bool stream, norm_row *row) {
  const size_t size = tigon_dtype_size(dtype);
  const bool fused = kind == NORM_ADD_RMS;
  *row = (norm_row){
      .x = tigon_row(&p->space, &p->x, size, r),
      .residual = fused ? tigon_row(&p->space, &p->residual, size, r) : NULL,
      .s = fused ? tigon_row(&p->space, &p->s, size, r) : NULL,
      .y = tigon_row(&p->space, &p->y, size, r),
      .next_x = tigon_row(&p->space, &p->x, size, next),
      .next_residual = fused ? tigon_row(&p->space, &p->residual, size, next) : NULL,
  };
  row->stream = stream && v2_aligned(row->y) && (!fused || v2_aligned(row->s));
  norm_statistics(dtype, kind, p, row);
  if (p->rstd) p->rstd[r] = row->rstd;
  if (norm_centers(kind) && p->mean) p->mean[r] = row->center;
}

TIGON_INLINE void norm_fwd_rows(tigon_dtype dtype, norm_kind kind, const tigon_norm_fwd_problem *p, int64_t begin,
                                int64_t end, bool stream) {
  const bool rounds = kind != NORM_LAYER && p->casting != TIGON_CASTING_GEMMA && dtype != TIGON_F32;
  const int64_t row_bytes = (kind == NORM_ADD_RMS ? 2 : 1) * p->cols * v_size(dtype);
  const int most = p->cols <= NORM_PANEL ? 1 : norm_group_rows(row_bytes);
  norm_weights weights = {.w = p->w, .dtype = p->w_dtype, .offset = p->w_offset, .absent = 1};
  norm_weights bias = {.w = p->b, .dtype = p->b_dtype};
  norm_panel w, b;
  w.cols = b.cols = 0;
  for (int64_t r = begin, rows; r < end; r += rows) {
    rows = end - r < most ? end - r : most;
    if (kind == NORM_MODULATED) {
      const int64_t group = r / p->share, left = (group + 1) * p->share - r;
      rows = rows < left ? rows : left;
      weights.scale = tigon_row(&p->groups, &p->scale, tigon_dtype_size(p->scale_dtype), group);
      weights.scale_dtype = p->scale_dtype;
      bias.w = tigon_row(&p->groups, &p->shift, tigon_dtype_size(p->shift_dtype), group);
      bias.dtype = p->shift_dtype;
    }
    norm_row row[NORM_GROUP];
    for (int i = 0; i < rows; ++i)
      norm_fwd_row(dtype, kind, p, r + i, r + i + rows < end ? r + i + rows : r + i, stream, &row[i]);
    for (int64_t first = 0; first < p->cols; first += NORM_PANEL) {
      norm_load_panel(&w, first, p->cols, dtype, &weights);
      if (norm_has_bias(kind)) norm_load_panel(&b, first, p->cols, dtype, &bias);
      for (int i = 0; i < rows; ++i)
        if (rounds)
          norm_fwd_put(dtype, kind, true, &row[i], &w, &b);
        else
          norm_fwd_put(dtype, kind, false, &row[i], &w, &b);
    }
  }
  if (stream) vf_fence();
}

/* ---- tasks: rows are independent ---- */

/* Of all a row's tensors. */
TIGON_INLINE int64_t norm_fwd_bytes(norm_kind kind, const tigon_norm_fwd_problem *p) {
  return (kind == NORM_ADD_RMS ? 4 : 2) * p->cols * v_size(p->dtype);
}

TIGON_INLINE void norm_fwd_task(norm_kind kind, const tigon_norm_fwd_problem *p, int64_t index) {
  const int64_t rows = p->space.rows, bytes = norm_fwd_bytes(kind, p);
  int64_t begin, end;
  tigon_plan_range(rows, tigon_cpu_row_tasks(rows, bytes), index, &begin, &end);
  TIGON_FOR_DTYPE(p->dtype, norm_fwd_rows, kind, p, begin, end, tigon_cpu_streams(rows * bytes));
}

/* `task` calls norm_fwd_task() with the kind. */
TIGON_INLINE tigon_status norm_fwd_run(norm_kind kind, const tigon_queue *queue, const tigon_norm_fwd_problem *p,
                                       void (*task)(const void *argument, int64_t index)) {
  tigon_cpu_parallel(queue, tigon_cpu_row_tasks(p->space.rows, norm_fwd_bytes(kind, p)), task, p);
  return TIGON_OK;
}

#endif
