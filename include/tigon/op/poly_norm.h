/* poly_norm: a weighted sum of normalised powers (Zhuo et al. 2024, arXiv:2411.03884, "PolyNorm").
 *
 * Forward, over the last dimension, with n(u) = u * r and r = 1 / sqrt(mean(u^2) + eps):
 *   y = w[0] * n(x^3) + w[1] * n(x^2) + w[2] * n(x) + b
 * Backward, with r_p the r of the power p, w_p its weight, and S_p = sum over the row of dy * x^p:
 *   dx = sum over p of w_p * p * x^(p-1) * r_p * (dy - x^p * r_p^2 * S_p / C)
 *   dw_p = sum over rows of r_p * S_p        db = sum over all elements of dy
 *
 * Shapes: x, y, dy, dx [..., C], any leading dimensions; rstd [..., 3], r of the powers 3, 2, 1; w, dw [3]; b, db [1]. All lie in
 * the memory of the device.
 * dtypes: x f32, bf16 or f16; y, dy, dx as x; rstd f32; each of w, b, dw, db f32 or as x. The arithmetic is f32, rounded once, at
 * the store. A row gives NaN or Inf if its sum of x^6 is beyond f32's range (an |x| above 2e6 or so).
 * Strides: the last one of x, y, dy, dx is 1, the leading ones are free (three at most: tigon.h); the others contiguous.
 * In place: y may be x; dx may be dy or x (the same view exactly). Any other overlap with an output is an error.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_POLY_NORM_H
#define TIGON_OP_POLY_NORM_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_poly_norm_fwd_args {
  tigon_tensor x;    /* in  [..., C] */
  tigon_tensor w;    /* in  [3] */
  tigon_tensor b;    /* in  [1]; absent: 0 */
  tigon_tensor y;    /* out [..., C] */
  tigon_tensor rstd; /* out [..., 3]; absent: not stored */
  double eps;        /* >= 0 */
  uint64_t reserved[4];
} tigon_poly_norm_fwd_args;

TIGON_API tigon_status tigon_poly_norm_fwd(tigon_context *context, const tigon_poly_norm_fwd_args *args);

typedef struct tigon_poly_norm_bwd_args {
  tigon_tensor dy;   /* in  [..., C] */
  tigon_tensor x;    /* in  [..., C], forward's */
  tigon_tensor w;    /* in  [3], forward's */
  tigon_tensor rstd; /* in  [..., 3], forward's */
  tigon_tensor dx;   /* out [..., C] */
  tigon_tensor dw;   /* out [3]; absent: not computed */
  tigon_tensor db;   /* out [1]; absent: not computed */
  int accumulate_dw; /* 1: dw and db +=, 0: = */
  void *workspace;   /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_poly_norm_bwd_args;

TIGON_API tigon_status tigon_poly_norm_bwd(tigon_context *context, const tigon_poly_norm_bwd_args *args);

/* Bytes of workspace that tigon_poly_norm_bwd() needs for these arguments (their data and workspace are not read). */
TIGON_API tigon_status tigon_poly_norm_bwd_workspace(tigon_context *context, const tigon_poly_norm_bwd_args *args,
                                                     size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
