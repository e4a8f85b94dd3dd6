/* Rows of rms_norm in 8 bits, each with a scale. A panel's y is worked out in f32, first for the row's largest, then for q; a row of one
 * panel has it from the first time. */
#ifndef TIGON_CPU_NORM_QUANTISED_H
#define TIGON_CPU_NORM_QUANTISED_H

#include "core/half.h"
#include "cpu/norm_fwd.h"

enum { NORM_QUANTISED_BLOCK = 1024 }; /* columns whose y is still in the L1 when their largest is looked for */

/* y of up to STEP columns of the panel. */
TIGON_INLINE void norm_quantised_step(tigon_dtype dtype, norm_kind kind, bool rounds, v_values are, const norm_row *row,
                                      const norm_panel *weights, int64_t c, int n, float *y) {
  const vf2 w = norm_weight(weights->w, c);
  v2_prefetch(row->next_x, weights->first + c, dtype);
  const vf2 v = norm_fwd_value(dtype, kind, rounds, are, row, w, w, weights->first + c, n);
  v2_put(y, c, TIGON_F32, v2_natural(v, dtype), n, false, V_OWN);
}

/* y of columns [c, end). */
TIGON_INLINE void norm_quantised_values(tigon_dtype dtype, norm_kind kind, bool rounds, const norm_row *row,
                                        norm_panel *weights, int64_t c, int64_t end, float *y) {
  if (norm_is_normal(dtype, kind, row, weights))
    for (; c + STEP <= end; c += STEP) norm_quantised_step(dtype, kind, rounds, V_NORMAL, row, weights, c, STEP, y);
  else
    for (; c + STEP <= end; c += STEP) norm_quantised_step(dtype, kind, rounds, V_OWN, row, weights, c, STEP, y);
  if (c < end) norm_quantised_step(dtype, kind, rounds, V_OWN, row, weights, c, (int)(end - c), y);
}

/* The bits of the largest |y|, which rise with it; those of a NaN are beyond all others. */
static inline uint32_t norm_quantised_largest(uint32_t largest, const float *y, int64_t n) {
  for (int64_t c = 0; c < n; ++c) {
    const uint32_t bits = tigon_bits(y[c]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

/* y / scale as a division rounds it, but for the sign of 0; `inverse` is 1 / scale, rounded. Two steps by the remainder
 * (Markstein 1990, doi:10.1147/rd.341.0111) take half of a division's time. */
static inline float norm_quotient(float y, float scale, float inverse) {
  const float near = y * inverse, nearer = fmaf(fmaf(-near, scale, y), inverse, near);
  return fmaf(fmaf(-nearer, scale, y), inverse, nearer);
}

/* The steps need an instruction for fmaf, and a scale whose remainders are not denormal where q is not 0. Then no y is a NaN, and
 * none is beyond 127. */
static inline void norm_quantised_put_i8(int8_t *q, const float *y, float scale, int64_t n) {
  const float inverse = 1 / scale, whole = 0x1.8p23f;
  if (LANES > 1 && scale > 0x1p-60f && scale < 0x1p60f)
    for (int64_t c = 0; c < n; ++c)
      q[c] = (int8_t)(tigon_bits(norm_quotient(y[c], scale, inverse) + whole) - tigon_bits(whole));
  else
    for (int64_t c = 0; c < n; ++c) q[c] = tigon_i8_from_f32(y[c] / scale);
}

static inline void norm_quantised_put(tigon_dtype dtype, void *q, int64_t first, const float *y, float scale,
                                      int64_t n) {
  if (dtype == TIGON_I8)
    norm_quantised_put_i8((int8_t *)q + first, y, scale, n);
  else
    for (int64_t c = 0; c < n; ++c) ((uint8_t *)q)[first + c] = tigon_f8e4m3_from_f32(y[c] / scale);
}

TIGON_INLINE void norm_quantised_rows(tigon_dtype dtype, norm_kind kind, const norm_fwd_job *job, int64_t begin,
                                      int64_t end) {
  const tigon_norm_fwd_problem *p = job->p;
  const bool rounds = p->casting != TIGON_CASTING_GEMMA && dtype != TIGON_F32;
  const norm_weights weights = {.w = p->w, .dtype = p->w_dtype, .offset = p->w_offset, .absent = 1};
  float y[NORM_PANEL] __attribute__((aligned(64)));
  norm_panel w;
  w.cols = 0;
  for (int64_t r = begin; r < end; ++r) {
    void *q = tigon_row(&p->space, &p->q, 1, r);
    uint32_t largest = 0;
    norm_row row;
    norm_fwd_row(dtype, kind, p, r, r + 1 < end ? r + 1 : r, false, NULL, &row);
    norm_statistics(dtype, kind, job, r, &row);
    for (int64_t first = 0; first < p->cols; first += NORM_PANEL) {
      norm_load_panel(&w, first, p->cols, dtype, &weights);
      for (int64_t c = 0; c < w.cols; c += NORM_QUANTISED_BLOCK) {
        const int64_t stop = w.cols - c < NORM_QUANTISED_BLOCK ? w.cols : c + NORM_QUANTISED_BLOCK;
        norm_quantised_values(dtype, kind, rounds, &row, &w, c, stop, y);
        largest = norm_quantised_largest(largest, y + c, stop - c);
      }
    }
    const float scale = tigon_from_bits(largest) / (p->q_dtype == TIGON_I8 ? 127.0f : 448.0f);
    p->q_scale[r] = scale < 0x1p-126f ? 1 : scale;
    for (int64_t first = 0; first < p->cols; first += NORM_PANEL) {
      norm_load_panel(&w, first, p->cols, dtype, &weights);
      if (p->cols > NORM_PANEL) norm_quantised_values(dtype, kind, rounds, &row, &w, 0, w.cols, y);
      norm_quantised_put(p->q_dtype, q, first, y, p->q_scale[r], w.cols);
    }
  }
}

TIGON_INLINE void norm_quantised_task(norm_kind kind, const norm_fwd_job *job, int64_t index) {
  const tigon_norm_fwd_problem *p = job->p;
  int64_t begin, end;
  tigon_range(p->space.rows, tigon_cpu_row_tasks(p->space.rows, norm_fwd_bytes(kind, p)), index, &begin, &end);
  TIGON_FOR_DTYPE(p->dtype, norm_quantised_rows, kind, job, begin, end);
}

#endif
