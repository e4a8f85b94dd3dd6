/* Rows of rms_norm in 8 bits, each with a scale. A panel's y is worked out in f32, first for the row's largest, then for q; a row of one
 * panel has it from the first time. */
#ifndef TIGON_CPU_NORM_QUANTISED_H
#define TIGON_CPU_NORM_QUANTISED_H

#include "core/half.h"
#include "cpu/norm_fwd.h"

/* y of the panel's columns. */
TIGON_INLINE void norm_quantised_values(tigon_dtype dtype, norm_kind kind, bool rounds, const norm_row *row,
                                        const norm_panel *weights, float *y) {
  const float *w = weights->w;
  const int64_t cols = weights->cols, first = weights->first;
  for (int64_t c = 0; c < cols; c += STEP) {
    const int n = cols - c < STEP ? (int)(cols - c) : STEP;
    const vf2 one = norm_weight(w, c), v = norm_fwd_value(dtype, kind, rounds, V_OWN, row, one, one, first + c, n);
    v2_put(y, c, TIGON_F32, v2_natural(v, dtype), n, false, V_OWN);
  }
}

/* The bits of the largest |y|, which rise with it; those of a NaN are beyond all others. */
static inline uint32_t norm_quantised_largest(uint32_t largest, const float *y, int64_t n) {
  for (int64_t c = 0; c < n; ++c) {
    const uint32_t bits = tigon_bits(y[c]) & 0x7fffffff;
    largest = bits > largest ? bits : largest;
  }
  return largest;
}

static inline void norm_quantised_put(tigon_dtype dtype, void *q, int64_t first, const float *y, float scale,
                                      int64_t n) {
  if (dtype == TIGON_I8)
    for (int64_t c = 0; c < n; ++c) ((int8_t *)q)[first + c] = tigon_i8_from_f32(y[c] / scale);
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
    norm_fwd_row(dtype, kind, p, r, r, false, NULL, &row);
    norm_statistics(dtype, kind, job, r, &row);
    for (int64_t first = 0; first < p->cols; first += NORM_PANEL) {
      norm_load_panel(&w, first, p->cols, dtype, &weights);
      norm_quantised_values(dtype, kind, rounds, &row, &w, y);
      largest = norm_quantised_largest(largest, y, w.cols);
    }
    const float scale = tigon_from_bits(largest) / (p->q_dtype == TIGON_I8 ? 127.0f : 448.0f);
    p->q_scale[r] = scale < 0x1p-126f ? 1 : scale;
    for (int64_t first = 0; first < p->cols; first += NORM_PANEL) {
      norm_load_panel(&w, first, p->cols, dtype, &weights);
      if (p->cols > NORM_PANEL) norm_quantised_values(dtype, kind, rounds, &row, &w, y);
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
