/* dyt: dynamic tanh, which replaces a norm (Zhu et al. 2025, arXiv:2503.10622).
 *
 * Forward:   y = gamma * tanh(alpha * x) + beta
 * Backward, with t = tanh(alpha * x) and q = dy * gamma * (1 - t^2):
 *   dx = alpha * q                           dalpha = sum over all elements of q * x
 *   dgamma = sum over rows of dy * t         dbeta = sum over rows of dy
 *
 * Shapes: x, y, dy, dx [..., C], any leading dimensions; gamma, beta, dgamma, dbeta [C]; alpha, dalpha [1]. All of them lie in
 *   the memory of the device.
 * dtypes: x f32, bf16 or f16; y, dy, dx as x; each of alpha, gamma, beta and their gradients f32 or as x. The arithmetic is
 *   f32, rounded once, at the store. 1 - t^2 is computed as 4 e / (1 + e)^2 with e = exp(-2 |alpha x|). So no digits cancel
 *   where t is near 1.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h); the others contiguous.
 * In place: y may be x; dx may be dy or x (the same view exactly). Any other overlap with an output is an error.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_DYT_H
#define TIGON_OP_DYT_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_dyt_fwd_args {
  tigon_tensor x;     /* in  [..., C] */
  tigon_tensor alpha; /* in  [1] */
  tigon_tensor gamma; /* in  [C] */
  tigon_tensor beta;  /* in  [C]; absent: 0 */
  tigon_tensor y;     /* out [..., C] */
  uint64_t reserved[4];
} tigon_dyt_fwd_args;

TIGON_API tigon_status tigon_dyt_fwd(tigon_context *context, const tigon_dyt_fwd_args *args);

typedef struct tigon_dyt_bwd_args {
  tigon_tensor dy;       /* in  [..., C] */
  tigon_tensor x;        /* in  [..., C], forward's */
  tigon_tensor alpha;    /* in  [1], forward's */
  tigon_tensor gamma;    /* in  [C], forward's */
  tigon_tensor dx;       /* out [..., C] */
  tigon_tensor dalpha;   /* out [1]; absent: not computed */
  tigon_tensor dgamma;   /* out [C]; absent: not computed */
  tigon_tensor dbeta;    /* out [C]; absent: not computed */
  int accumulate_dgamma; /* 1: dalpha, dgamma and dbeta +=, 0: = */
  void *workspace;       /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_dyt_bwd_args;

TIGON_API tigon_status tigon_dyt_bwd(tigon_context *context, const tigon_dyt_bwd_args *args);

/* Bytes of workspace that tigon_dyt_bwd() needs for these arguments (their data and workspace are not read). */
TIGON_API tigon_status tigon_dyt_bwd_workspace(tigon_context *context, const tigon_dyt_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
