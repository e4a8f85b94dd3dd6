/* modulated_rms_norm: rms_norm, scaled and shifted by another network's output.
 * Source: adaptive layer norm; DiT: Peebles & Xie 2023, arXiv:2212.09748.
 *
 * Forward:   n = xhat * (w + w_offset)        y = (1 + scale) * n + shift        (rms_norm.h: xhat, rstd, w_offset, casting)
 * Backward, with g = dy * (1 + scale) * (w + w_offset):
 *   dx = rstd * (g - xhat * mean(g * xhat))        dw = sum over rows of dy * (1 + scale) * xhat
 *   dscale = sum of dy * n        dshift = sum of dy        over the rows that share a row of scale and shift
 *
 * Shapes: x, y, dy, dx [..., C], any leading dimensions; w, dw [C]; rstd [rows], rows = product of the leading ones.
 * scale has one of these shapes:
 *   - [C] for all rows;
 *   - [G, C] for G groups of consecutive rows: row r of x takes row r / (rows / G). G divides rows. If x has several leading
 *     dimensions, G is the product of the first ones: [B, C] or [B * T, C] for x [B, T, C];
 *   - leading dimensions as x, with 1 from one of them on: [B, 1, C].
 * shift, dscale, dshift as scale.
 * dtypes: x f32, bf16 or f16; y, dy, dx as x; each of w, scale, shift f32 or as x; dw f32 or as x; dscale, dshift f32 or as
 * scale; rstd f32. n and y are one f32 product and sum, rounded once, at the store.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h). So scale and shift may be columns of one
 *   tensor. w, dw and rstd are contiguous.
 * In place: y may be x; dx may be dy or x (the same view exactly). Any other overlap with an output is an error.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_MODULATED_RMS_NORM_H
#define TIGON_OP_MODULATED_RMS_NORM_H

#include <tigon/op/rms_norm.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_modulated_rms_norm_fwd_args {
  tigon_tensor x;     /* in  [..., C] */
  tigon_tensor w;     /* in  [C]; absent: no affine */
  tigon_tensor scale; /* in  [C], [B, C] or [rows, C] */
  tigon_tensor shift; /* in  as scale; absent: 0 */
  tigon_tensor y;     /* out [..., C] */
  tigon_tensor rstd;  /* out [rows] f32, for backward; absent: not stored */
  double eps;         /* >= 0, finite */
  double w_offset;    /* any finite number */
  tigon_casting casting;
  uint64_t reserved[4];
} tigon_modulated_rms_norm_fwd_args;

TIGON_API tigon_status tigon_modulated_rms_norm_fwd(tigon_context *context,
                                                    const tigon_modulated_rms_norm_fwd_args *args);

typedef struct tigon_modulated_rms_norm_bwd_args {
  tigon_tensor dy;     /* in  [..., C] */
  tigon_tensor x;      /* in  [..., C], forward's */
  tigon_tensor w;      /* in  [C], forward's; absent: no affine */
  tigon_tensor scale;  /* in  forward's */
  tigon_tensor rstd;   /* in  [rows] f32, forward's */
  tigon_tensor dx;     /* out [..., C] */
  tigon_tensor dw;     /* out [C]; absent: not computed */
  tigon_tensor dscale; /* out as scale; absent: not computed */
  tigon_tensor dshift; /* out as scale; absent: not computed */
  double w_offset;
  tigon_casting casting;
  int accumulate_dw;     /* 1: dw += , 0: dw = */
  int accumulate_dscale; /* 1: dscale += and dshift += , 0: = */
  void *workspace;       /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_modulated_rms_norm_bwd_args;

TIGON_API tigon_status tigon_modulated_rms_norm_bwd(tigon_context *context,
                                                    const tigon_modulated_rms_norm_bwd_args *args);

/* Bytes of workspace that tigon_modulated_rms_norm_bwd() needs for these arguments (their data and workspace are not read). */
TIGON_API tigon_status tigon_modulated_rms_norm_bwd_workspace(tigon_context *context,
                                                              const tigon_modulated_rms_norm_bwd_args *args,
                                                              size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
