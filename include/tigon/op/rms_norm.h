/* rms_norm: root-mean-square normalisation of rows (Zhang & Sennrich 2019, arXiv:1910.07467).
 *
 * Forward, for each row x[0..C):
 *   rstd = 1 / sqrt(mean(x^2) + eps)        xhat = x * rstd        n = xhat * (w + w_offset)        y = n
 * Backward, with g = dy * (w + w_offset):
 *   dx = rstd * (g - xhat * mean(g * xhat))        dw = sum over rows of dy * xhat
 *
 * With a gate z (RMSNormGated of Qwen3-Next), sigma(z) = 1 / (1 + exp(-z)) and silu(z) = z * sigma(z):
 *   y = n * silu(z), a product in f32
 * In backward dn = dy * silu(z) replaces dy in dx and dw, and
 *   dz = dy * n * sigma(z) * (1 + z * (1 - sigma(z)))
 * The gate comes after the norm. Mamba-2's other order, the norm of x * silu(z), is not supported.
 *
 * Quantised, forward only: q and a scale for each row replace y, which is not rounded before.
 *   scale = max |y| / 448 for f8e4m3, / 127 for i8        q = y / scale, rounded to nearest even
 * scale is 1 where the quotient is less than 2^-126, as in a row of zeros. A NaN in a row's y makes its scale NaN, and its q NaN in
 * f8e4m3 and 0 in i8. An infinity makes the scale infinite, and its own q a NaN.
 *
 * Shapes: x, y, z, q, dy, dx, dz [..., C], any leading dimensions; w, dw [C]; rstd, scale [rows], rows = product of the leading ones.
 * dtypes: x f32, bf16 or f16; y, z, dy, dx, dz as x; w f32 or as x; dw f32 or as x; rstd, scale f32;
 *   q f8e4m3 or i8.
 * Strides: the last one is 1, the leading ones are free (three at most: tigon.h); w, dw, rstd and scale
 *   contiguous.
 * In place: y may be x or z. dx and dz may each be dy, x or z (the same view exactly), but not both the same. Any other overlap
 *   with an output is an error.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_RMS_NORM_H
#define TIGON_OP_RMS_NORM_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where rounding happens between x and y. */
typedef enum tigon_casting {
  TIGON_CASTING_LLAMA = 0, /* statistics in f32; xhat is rounded to x's dtype before "* w" */
  TIGON_CASTING_GEMMA = 1, /* all in f32, one rounding at the store */
  TIGON_CASTING_NONE = 2,  /* arithmetic in x's dtype: x^2's mean, rstd, xhat are each rounded to x's dtype */
} tigon_casting;

typedef struct tigon_rms_norm_fwd_args {
  tigon_tensor x;    /* in  [..., C] */
  tigon_tensor w;    /* in  [C]; absent: n = xhat */
  tigon_tensor y;    /* out [..., C] */
  tigon_tensor rstd; /* out [rows] f32, for backward; absent: not stored */
  tigon_tensor z;    /* in  [..., C], the gate; absent: y = n */
  double eps;        /* >= 0, finite */
  double w_offset;   /* 0 (Llama) or 1 (Gemma), any finite number */
  tigon_casting casting;
  uint64_t reserved[4];
} tigon_rms_norm_fwd_args;

TIGON_API tigon_status tigon_rms_norm_fwd(tigon_context *context, const tigon_rms_norm_fwd_args *args);

typedef struct tigon_rms_norm_quantised_args {
  tigon_tensor x;     /* in  [..., C] */
  tigon_tensor w;     /* in  [C]; absent: n = xhat */
  tigon_tensor z;     /* in  [..., C], the gate; absent: y = n */
  tigon_tensor q;     /* out [..., C] f8e4m3 or i8 */
  tigon_tensor scale; /* out [rows] f32 */
  double eps;
  double w_offset;
  tigon_casting casting;
  uint64_t reserved[4];
} tigon_rms_norm_quantised_args;

TIGON_API tigon_status tigon_rms_norm_quantised(tigon_context *context, const tigon_rms_norm_quantised_args *args);

typedef struct tigon_rms_norm_bwd_args {
  tigon_tensor dy;   /* in  [..., C] */
  tigon_tensor x;    /* in  [..., C], forward's */
  tigon_tensor w;    /* in  [C], forward's; absent: no affine */
  tigon_tensor rstd; /* in  [rows] f32, forward's */
  tigon_tensor dx;   /* out [..., C] */
  tigon_tensor dw;   /* out [C]; absent: not computed */
  tigon_tensor z;    /* in  [..., C], forward's; absent: no gate */
  tigon_tensor dz;   /* out [..., C], only with z; absent: not computed */
  double w_offset;
  tigon_casting casting;
  int accumulate_dw; /* 1: dw += , 0: dw = */
  void *workspace;   /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_rms_norm_bwd_args;

TIGON_API tigon_status tigon_rms_norm_bwd(tigon_context *context, const tigon_rms_norm_bwd_args *args);

/* Bytes of workspace that tigon_rms_norm_bwd() needs for these arguments (their data and workspace are not read). */
TIGON_API tigon_status tigon_rms_norm_bwd_workspace(tigon_context *context, const tigon_rms_norm_bwd_args *args,
                                                    size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
