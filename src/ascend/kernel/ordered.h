/* Vector calls of which each uses what the one before made: the vector pipe is in order after every one. */
#ifndef TIGON_ASCEND_KERNEL_ORDERED_H
#define TIGON_ASCEND_KERNEL_ORDERED_H

#include "ascend/aicore.h"

AICORE void add(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) {
  v_add_f32(d, a, b, n);
  sync_pipe(PIPE_V);
}
AICORE void sub(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) {
  v_sub_f32(d, a, b, n);
  sync_pipe(PIPE_V);
}
AICORE void mul(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) {
  v_mul_f32(d, a, b, n);
  sync_pipe(PIPE_V);
}
AICORE void divide(ub_f32 d, ub_f32 a, ub_f32 b, int64_t n) {
  v_div_f32(d, a, b, n);
  sync_pipe(PIPE_V);
}
AICORE void add_scalar(ub_f32 d, ub_f32 a, float value, int64_t n) {
  v_add_scalar_f32(d, a, value, n);
  sync_pipe(PIPE_V);
}
AICORE void mul_scalar(ub_f32 d, ub_f32 a, float value, int64_t n) {
  v_mul_scalar_f32(d, a, value, n);
  sync_pipe(PIPE_V);
}
AICORE void at_least(ub_f32 d, ub_f32 a, float low, int64_t n) {
  v_max_scalar_f32(d, a, low, n);
  sync_pipe(PIPE_V);
}
AICORE void at_most(ub_f32 d, ub_f32 a, float high, int64_t n) {
  v_min_scalar_f32(d, a, high, n);
  sync_pipe(PIPE_V);
}
AICORE void exponential(ub_f32 d, ub_f32 a, int64_t n) {
  v_exp_f32(d, a, n);
  sync_pipe(PIPE_V);
}
AICORE void absolute(ub_f32 d, ub_f32 a, int64_t n) {
  v_abs_f32(d, a, n);
  sync_pipe(PIPE_V);
}
AICORE void duplicate(ub_f32 d, float value, int64_t n) {
  v_duplicate_f32(d, value, n);
  sync_pipe(PIPE_V);
}

/* d = the polynomial at z, the coefficient of the highest power first. */
AICORE void polynomial(ub_f32 d, ub_f32 z, const float *c, int count, int64_t n) {
  mul_scalar(d, z, c[0], n);
  for (int i = 1; i < count - 1; ++i) {
    add_scalar(d, d, c[i], n);
    mul(d, d, z, n);
  }
  add_scalar(d, d, c[count - 1], n);
}

#endif
