/* layer_norm: layer normalisation of rows (Ba, Kiros & Hinton 2016, arXiv:1607.06450).
 *
 * Forward, for each row x[0..C):
 *   mean = sum(x) / C        rstd = 1 / sqrt(sum((x - mean)^2) / C + eps)        xhat = (x - mean) * rstd
 *   y = xhat * w + b
 * Backward, with g = dy * w:
 *   dx = rstd * (g - mean(g) - xhat * mean(g * xhat))
 *   dw = sum over rows of dy * xhat        db = sum over rows of dy
 *
 * Shapes: x, y, dy, dx [..., C], any leading dimensions; w, b, dw, db [C]; mean, rstd [rows], rows = product of the leading
 * ones.
 * dtypes: x f32, bf16 or f16; y, dy, dx as x; each of w, b, dw, db f32 or as x; mean, rstd f32. The arithmetic is f32,
 * rounded once, at the store. The variance is the mean of squared differences, so a large mean costs no digits.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h); w, b, dw, db, mean and rstd contiguous.
 * In place: y may be x; dx may be dy or x (the same view exactly). Any other overlap with an output is an error.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_LAYER_NORM_H
#define TIGON_OP_LAYER_NORM_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_layer_norm_fwd_args {
  tigon_tensor x;    /* in  [..., C] */
  tigon_tensor w;    /* in  [C]; absent: 1 */
  tigon_tensor b;    /* in  [C]; absent: 0 */
  tigon_tensor y;    /* out [..., C] */
  tigon_tensor mean; /* out [rows] f32, for backward; absent: not stored */
  tigon_tensor rstd; /* out [rows] f32, for backward; absent: not stored */
  double eps;        /* >= 0, finite */
  uint64_t reserved[4];
} tigon_layer_norm_fwd_args;

TIGON_API tigon_status tigon_layer_norm_fwd(tigon_context *context, const tigon_layer_norm_fwd_args *args);

typedef struct tigon_layer_norm_bwd_args {
  tigon_tensor dy;   /* in  [..., C] */
  tigon_tensor x;    /* in  [..., C], forward's */
  tigon_tensor w;    /* in  [C], forward's; absent: 1 */
  tigon_tensor mean; /* in  [rows] f32, forward's */
  tigon_tensor rstd; /* in  [rows] f32, forward's */
  tigon_tensor dx;   /* out [..., C] */
  tigon_tensor dw;   /* out [C]; absent: not computed */
  tigon_tensor db;   /* out [C]; absent: not computed */
  int accumulate_dw; /* 1: dw += and db += , 0: = */
  void *workspace;   /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_layer_norm_bwd_args;

TIGON_API tigon_status tigon_layer_norm_bwd(tigon_context *context, const tigon_layer_norm_bwd_args *args);

/* Bytes of workspace that tigon_layer_norm_bwd() needs for these arguments (their data and workspace are not read). */
TIGON_API tigon_status tigon_layer_norm_bwd_workspace(tigon_context *context, const tigon_layer_norm_bwd_args *args,
                                                      size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
