/* relu_squared: the activation of Primer (So et al. 2021, arXiv:2109.08668).
 *
 * Forward:   y = relu(x)^2,   relu(x) = x for x > 0, 0 for x <= 0, NaN for NaN
 * Backward:  dx = 2 * relu(x) * dy
 *
 * Shapes: x, y, dy, dx [..., C].
 * dtypes: f32, bf16, f16, all the same; arithmetic in f32, one rounding at the store.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h).
 * In place: y may be x; dx may be dy or x.
 * Errors: INVALID, ALIAS, UNSUPPORTED. */
#ifndef TIGON_OP_RELU_SQUARED_H
#define TIGON_OP_RELU_SQUARED_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_relu_squared_fwd_args {
  tigon_tensor x; /* in  [..., C] */
  tigon_tensor y; /* out [..., C] */
  uint64_t reserved[4];
} tigon_relu_squared_fwd_args;

TIGON_API tigon_status tigon_relu_squared_fwd(tigon_context *context, const tigon_relu_squared_fwd_args *args);

typedef struct tigon_relu_squared_bwd_args {
  tigon_tensor dy; /* in  [..., C] */
  tigon_tensor x;  /* in  [..., C], forward's */
  tigon_tensor dx; /* out [..., C] */
  uint64_t reserved[4];
} tigon_relu_squared_bwd_args;

TIGON_API tigon_status tigon_relu_squared_bwd(tigon_context *context, const tigon_relu_squared_bwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
