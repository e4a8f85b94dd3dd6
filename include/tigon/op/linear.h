/* linear: y = x W^T + b and its gradients, the GEMM slot. A well-kept library runs it if one is found at run time. Otherwise
 * the built-in blocked GEMM does. tigon_context_gemm() names which, and its determinism grade.
 *
 * Forward:   y[r, n] = sum_k x[r, k] * w[n, k] + b[n]
 * Backward:  dx[r, k] = sum_n dy[r, n] * w[n, k]     dw[n, k] = sum_r dy[r, n] * x[r, k]     db[n] = sum_r dy[r, n]
 *
 * Shapes: x, dx [..., K]; w, dw [N, K]; b, db [N]; y, dy [..., N].
 * dtypes: x f32, bf16, f16; w as x; b f32 or as x; y as x or f32; dy as y may be; dx as x; dw, db f32 or as w.
 *   Products are summed in f32 and rounded once, at the store.
 * Strides: the last one is 1; leading dimensions of x, y, dx, dy must collapse to one row pitch (tigon.h); w, dw any row pitch.
 * In place: none.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_LINEAR_H
#define TIGON_OP_LINEAR_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_linear_fwd_args {
  tigon_tensor x; /* in  [..., K] */
  tigon_tensor w; /* in  [N, K] */
  tigon_tensor b; /* in  [N]; absent: none */
  tigon_tensor y; /* out [..., N] */
  uint64_t reserved[4];
} tigon_linear_fwd_args;

TIGON_API tigon_status tigon_linear_fwd(tigon_context *context, const tigon_linear_fwd_args *args);

typedef struct tigon_linear_bwd_args {
  tigon_tensor dy;   /* in  [..., N] */
  tigon_tensor x;    /* in  [..., K]; may be absent when dw is */
  tigon_tensor w;    /* in  [N, K]; may be absent when dx is */
  tigon_tensor dx;   /* out [..., K]; absent: not computed */
  tigon_tensor dw;   /* out [N, K]; absent: not computed */
  tigon_tensor db;   /* out [N]; absent: not computed */
  int accumulate_dw; /* 1: dw += and db += , 0: = */
  void *workspace;   /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_linear_bwd_args;

TIGON_API tigon_status tigon_linear_bwd(tigon_context *context, const tigon_linear_bwd_args *args);
TIGON_API tigon_status tigon_linear_bwd_workspace(tigon_context *context, const tigon_linear_bwd_args *args,
                                                  size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
