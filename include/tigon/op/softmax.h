/* softmax: over the last dimension, with scale, additive mask and causal mask.
 *
 * Forward:   z = scale * x + mask        y = exp(z - max z) / sum exp(z - max z)
 *            causal: column c of query row r counts when c <= r + (C - T), T = shape[ndim-2]; else y = 0
 *            a row whose every z is -inf gives y = 0
 * Backward:  dx = scale * y * (dy - sum(dy * y))
 *
 * Shapes: x, y, dy, dx [..., T, C] (with one dimension, T = 1, and mask may be [1, C]); mask [C], [T, C] or x's
 *   shape, added in f32.
 * dtypes: x f32, bf16, f16; y, dy, dx as x; mask f32 or as x. Arithmetic in f32, one rounding at the store.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h). Any width C.
 * In place: y may be x; dx may be dy or y.
 * Errors: INVALID, ALIAS, UNSUPPORTED. */
#ifndef TIGON_OP_SOFTMAX_H
#define TIGON_OP_SOFTMAX_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_softmax_fwd_args {
  tigon_tensor x;    /* in  [..., T, C] */
  tigon_tensor mask; /* in  [C], [T, C] or x's shape; absent: none */
  tigon_tensor y;    /* out [..., T, C] */
  double scale;      /* 0 means 1 */
  int causal;        /* 1: causal */
  uint64_t reserved[4];
} tigon_softmax_fwd_args;

TIGON_API tigon_status tigon_softmax_fwd(tigon_context *context, const tigon_softmax_fwd_args *args);

typedef struct tigon_softmax_bwd_args {
  tigon_tensor dy; /* in  [..., T, C] */
  tigon_tensor y;  /* in  [..., T, C], forward's */
  tigon_tensor dx; /* out [..., T, C] */
  double scale;    /* 0 means 1 */
  uint64_t reserved[4];
} tigon_softmax_bwd_args;

TIGON_API tigon_status tigon_softmax_bwd(tigon_context *context, const tigon_softmax_bwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
