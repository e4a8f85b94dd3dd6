/* The formulas of MHC_LANES tokens at once: element m of a token lies at [m, lane]. */
#ifndef TIGON_ASCEND_KERNEL_MHC_LANES_H
#define TIGON_ASCEND_KERNEL_MHC_LANES_H

#include "ascend/kernel/mhc.h"
#include "ascend/kernel/norm.h"
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/scalar.h"

AICORE ub_f32 mhc_lane(ub_f32 x, int64_t m) { return ub_at_f32(x, m * MHC_LANES); }

/* d = 1 / (1 + e^-x) = e^min(x, 0) / (1 + e^-|x|) of n elements. */
AICORE void mhc_sigmoid(ub_f32 d, ub_f32 x, ub_f32 work, int64_t n) {
  absolute(work, x, n);
  mul_scalar(work, work, -1, n);
  exponential(work, work, n);
  add_scalar(work, work, 1, n);
  at_most(d, x, 0, n);
  exponential(d, d, n);
  divide(d, d, work, n);
}

/* p = softmax of the rows of l [n, n]. */
AICORE void mhc_softmax(ub_f32 p, ub_f32 l, ub_f32 work, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    const ub_f32 row = mhc_lane(p, j * n), from = mhc_lane(l, j * n);
    mul_scalar(work, from, 1, MHC_LANES);
    for (int64_t i = 1; i < n; ++i) {
      v_max_f32(work, work, mhc_lane(from, i), MHC_LANES);
      sync_pipe(PIPE_V);
    }
    for (int64_t i = 0; i < n; ++i) v_sub_f32(mhc_lane(row, i), mhc_lane(from, i), work, MHC_LANES);
    sync_pipe(PIPE_V);
    exponential(row, row, n * MHC_LANES);
    mul_scalar(work, row, 1, MHC_LANES);
    for (int64_t i = 1; i < n; ++i) add(work, work, mhc_lane(row, i), MHC_LANES);
    for (int64_t i = 0; i < n; ++i) v_div_f32(mhc_lane(row, i), mhc_lane(row, i), work, MHC_LANES);
    sync_pipe(PIPE_V);
  }
}

/* Elements from one of a line to the next, and from line to line: even steps are of columns, odd ones of rows. */
AICORE int64_t mhc_inside(int64_t n, int64_t step) { return step % 2 ? 1 : n; }
AICORE int64_t mhc_across(int64_t n, int64_t step) { return step % 2 ? n : 1; }

/* m [n, n] by tmax rounds. Step's denominators are kept at [step, n], or with `keep` false in the same place. */
AICORE void mhc_rounds(ub_f32 m, ub_f32 by, int64_t n, int64_t tmax, float eps, bool keep) {
  add_scalar(m, m, eps, n * n * MHC_LANES);
  for (int64_t step = 0; step < 2 * tmax - 1; ++step)
    for (int64_t v = 0; v < n; ++v) {
      const ub_f32 line = mhc_lane(m, v * mhc_across(n, step)), sum = mhc_lane(by, (keep ? step * n : 0) + v);
      const int64_t next = mhc_inside(n, step);
      mul_scalar(sum, line, 1, MHC_LANES);
      for (int64_t w = 1; w < n; ++w) add(sum, sum, mhc_lane(line, w * next), MHC_LANES);
      add_scalar(sum, sum, eps, MHC_LANES);
      for (int64_t w = 0; w < n; ++w) v_div_f32(mhc_lane(line, w * next), mhc_lane(line, w * next), sum, MHC_LANES);
      sync_pipe(PIPE_V);
    }
}

/* g of a line = g - sum of g * m over it. `work` has n lanes and one more. */
AICORE void mhc_project(ub_f32 g, ub_f32 m, ub_f32 work, int64_t n, int64_t next) {
  const ub_f32 dot = mhc_lane(work, n);
  for (int64_t w = 0; w < n; ++w) v_mul_f32(mhc_lane(work, w), mhc_lane(g, w * next), mhc_lane(m, w * next), MHC_LANES);
  sync_pipe(PIPE_V);
  mul_scalar(dot, work, 1, MHC_LANES);
  for (int64_t w = 1; w < n; ++w) add(dot, dot, mhc_lane(work, w), MHC_LANES);
  for (int64_t w = 0; w < n; ++w) v_sub_f32(mhc_lane(g, w * next), mhc_lane(g, w * next), dot, MHC_LANES);
  sync_pipe(PIPE_V);
}

/* g, the gradients of h_res, which is m, become those of the logits. */
AICORE void mhc_rounds_back(ub_f32 g, ub_f32 m, ub_f32 p, ub_f32 by, ub_f32 work, int64_t n, int64_t tmax) {
  for (int64_t step = 2 * tmax - 2; step >= 0; --step)
    for (int64_t v = 0; v < n; ++v) {
      const int64_t first = v * mhc_across(n, step), next = mhc_inside(n, step);
      const ub_f32 line = mhc_lane(g, first), of_m = mhc_lane(m, first), divisor = mhc_lane(by, step * n + v);
      mhc_project(line, of_m, work, n, next);
      for (int64_t w = 0; w < n; ++w) {
        v_div_f32(mhc_lane(line, w * next), mhc_lane(line, w * next), divisor, MHC_LANES);
        v_mul_f32(mhc_lane(of_m, w * next), mhc_lane(of_m, w * next), divisor, MHC_LANES);
      }
      sync_pipe(PIPE_V);
    }
  for (int64_t j = 0; j < n; ++j) mhc_project(mhc_lane(g, j * n), mhc_lane(p, j * n), work, n, 1);
  mul(g, g, p, n * n * MHC_LANES);
}

/* Lanes of `count` tokens' words [count, n] as memory has them, and back; lanes without a token are 0. The scalar pipe copies. */
AICORE void mhc_to_lanes(ub_f32 lanes, ub_f32 words, int64_t n, int64_t pitch, int64_t count) {
  for (int64_t m = 0; m < n; ++m)
    for (int64_t t = 0; t < MHC_LANES; ++t)
      s_write_f32(lanes, m * MHC_LANES + t, t < count ? s_read_f32(words, t * pitch + m) : 0);
}
AICORE void mhc_from_lanes(ub_f32 words, ub_f32 lanes, int64_t n, int64_t pitch, int64_t count) {
  for (int64_t t = 0; t < count; ++t)
    for (int64_t m = 0; m < n; ++m) s_write_f32(words, t * pitch + m, s_read_f32(lanes, m * MHC_LANES + t));
}

#endif
