/* In place of a select: what a factor of 0 takes away is cleared by its bits. */
#ifndef TIGON_ASCEND_KERNEL_BITS_H
#define TIGON_ASCEND_KERNEL_BITS_H

#include "ascend/kernel/ordered.h"

/* mask = all bits where flag is 0 or NaN, none where it is 1 or more. */
AICORE void mask_unless(ub_f32 mask, ub_f32 flag, int64_t n) {
  at_most(mask, flag, 1, n);
  mul_scalar(mask, mask, -1, n);
  v_i32_from_f32(mask, mask, n);
  sync_pipe(PIPE_V);
  v_not_f32(mask, mask, n);
  sync_pipe(PIPE_V);
}
AICORE void clear(ub_f32 d, ub_f32 mask, int64_t n) {
  v_and_f32(d, d, mask, n);
  sync_pipe(PIPE_V);
}
/* x times a power of two that makes the least denormal a large number. */
AICORE void enlarge(ub_f32 d, ub_f32 x, int64_t n) {
  mul_scalar(d, x, 0x1p126f, n);
  mul_scalar(d, d, 0x1p126f, n);
}
/* x becomes 1 where it is above 0, else 0; a NaN stays. */
AICORE void make_factor(ub_f32 x, int64_t n) {
  at_least(x, x, 0, n);
  enlarge(x, x, n);
  at_most(x, x, 1, n);
}
/* d = 0 where factor is 0. */
AICORE void unless_0(ub_f32 d, ub_f32 factor, ub_f32 mask, int64_t n) {
  absolute(mask, factor, n);
  enlarge(mask, mask, n);
  at_most(mask, mask, 1, n);
  mul_scalar(mask, mask, -1, n);
  add_scalar(mask, mask, 1, n); /* 1 where it is 0 */
  mask_unless(mask, mask, n);
  clear(d, mask, n);
}

#endif
