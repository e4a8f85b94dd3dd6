/* sparsemax: softmax with exact zeros, the point of the probability simplex that is nearest to a row.
 * Source: Martins and Astudillo 2016, arXiv:1602.02068.
 *
 * Forward, over the last dimension:
 *   y = max(x - tau, 0)                      with tau such that a row of y sums to 1
 *   a row whose every x is -inf gives y = 0; a NaN or +inf in a row makes all of its y NaN
 * Backward, with S the columns of a row where y > 0, the row's support:
 *   dx = dy - mean of dy over S              on S
 *   dx = 0                                   elsewhere, whatever dy holds there
 *   a NaN in y is one of S, and makes dx NaN on S
 *
 * No row is sorted. With z = x - max x, tau comes from Newton's method on the convex function sum max(z - tau, 0) - 1, from the
 * left: tau <- (sum of z > tau, minus 1) / (their number), until it no longer grows. That is exact except for rounding, even with
 * ties and huge x.
 *
 * Shapes: x, y, dy, dx [..., C], any leading dimensions and any width C.
 * dtypes: x f32, bf16, f16; y, dy, dx as x. Arithmetic in f32, one rounding at the store. Backward reads S from the stored y. So in
 *   f16 a column that forward rounded to 0 is not in S.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h).
 * In place: y may be x; dx may be dy or y.
 * Errors: INVALID, ALIAS, UNSUPPORTED. */
#ifndef TIGON_OP_SPARSEMAX_H
#define TIGON_OP_SPARSEMAX_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_sparsemax_fwd_args {
  tigon_tensor x; /* in  [..., C] */
  tigon_tensor y; /* out [..., C] */
  uint64_t reserved[4];
} tigon_sparsemax_fwd_args;

TIGON_API tigon_status tigon_sparsemax_fwd(tigon_context *context, const tigon_sparsemax_fwd_args *args);

typedef struct tigon_sparsemax_bwd_args {
  tigon_tensor dy; /* in  [..., C] */
  tigon_tensor y;  /* in  [..., C], forward's */
  tigon_tensor dx; /* out [..., C] */
  uint64_t reserved[4];
} tigon_sparsemax_bwd_args;

TIGON_API tigon_status tigon_sparsemax_bwd(tigon_context *context, const tigon_sparsemax_bwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
