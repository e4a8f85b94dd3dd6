/* fused_add_rms_norm: the residual add and the rms_norm that follows it, in one pass.
 *
 * Forward:   s = x + residual (rounded to x's dtype)        y = rms_norm(s)        (rms_norm.h: rstd, w_offset, casting)
 * Backward:  dx = rms_norm_bwd(dy) + ds        dw = sum over rows of dy * shat        dx is the gradient of both x and residual
 *
 * Shapes: x, residual, s, y, dy, ds, dx [..., C]; w, dw [C]; rstd [rows].
 * dtypes, strides: as rms_norm; residual, s, ds as x.
 * In place: s may be x or residual, y may be x or residual (s and y differ); dx may be dy, ds or s.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_FUSED_ADD_RMS_NORM_H
#define TIGON_OP_FUSED_ADD_RMS_NORM_H

#include <tigon/op/rms_norm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_fused_add_rms_norm_fwd_args {
  tigon_tensor x;        /* in  [..., C] */
  tigon_tensor residual; /* in  [..., C] */
  tigon_tensor w;        /* in  [C]; absent: no affine */
  tigon_tensor s;        /* out [..., C] */
  tigon_tensor y;        /* out [..., C] */
  tigon_tensor rstd;     /* out [rows] f32; absent: not stored */
  double eps;
  double w_offset;
  tigon_casting casting;
  uint64_t reserved[4];
} tigon_fused_add_rms_norm_fwd_args;

TIGON_API tigon_status tigon_fused_add_rms_norm_fwd(tigon_context *context,
                                                    const tigon_fused_add_rms_norm_fwd_args *args);

typedef struct tigon_fused_add_rms_norm_bwd_args {
  tigon_tensor dy;   /* in  [..., C], the gradient of y */
  tigon_tensor ds;   /* in  [..., C], the gradient of s from later layers; absent: zero */
  tigon_tensor s;    /* in  [..., C], forward's */
  tigon_tensor w;    /* in  [C], forward's; absent: no affine */
  tigon_tensor rstd; /* in  [rows] f32, forward's */
  tigon_tensor dx;   /* out [..., C], the gradient of x and of residual */
  tigon_tensor dw;   /* out [C]; absent: not computed */
  double w_offset;
  tigon_casting casting;
  int accumulate_dw; /* 1: dw += , 0: dw = */
  void *workspace;   /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_fused_add_rms_norm_bwd_args;

TIGON_API tigon_status tigon_fused_add_rms_norm_bwd(tigon_context *context,
                                                    const tigon_fused_add_rms_norm_bwd_args *args);
TIGON_API tigon_status tigon_fused_add_rms_norm_bwd_workspace(tigon_context *context,
                                                              const tigon_fused_add_rms_norm_bwd_args *args,
                                                              size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
