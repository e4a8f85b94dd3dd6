/* mhc_coeffs: the coefficients of manifold-constrained hyper-connections, and the layer's input (Xie et al. 2025, arXiv:2512.24880).
 *
 * A token has HC streams of C channels, x [HC, C]. With K = HC * C and M = HC^2 + 2 * HC, forward is:
 *   r = 1 / sqrt(mean(x^2) + rms_eps)           mix = (x as [K] times phi) * r
 *   l = alpha * mix + b, with alpha_pre for the first HC, alpha_post for the next HC, alpha_res for the other HC * HC
 *   h_pre = sigmoid(l_pre) + pre_eps            h_post = post_mult * sigmoid(l_post)
 *   h_res = Sinkhorn(l_res as [HC, HC]):
 *     m = softmax(l_res) over each row + e, and m = m / (sum of each column + e), with e = sinkhorn_eps;
 *     tmax - 1 times: m = m / (sum of each row + e), then m = m / (sum of each column + e)
 *   y = sum over i of h_pre[i] * x[i]
 * y is made here so that one read of x can serve both. docs/op/mhc_coeffs.md says where it does. mhc_post_res makes y from a given
 * h_pre. So two operators cover the paper's three.
 * Backward, with s = sigmoid, dl_res from Sinkhorn's own backward, and dh_pre[i] including dy . x[i]:
 *   dl_pre = dh_pre * s * (1 - s)    dl_post = post_mult * dh_post * s * (1 - s)    dmix = alpha * dl
 *   dx[i] = (r * phi dmix - x * r^2 * (dmix . mix) / K)[i] + h_pre[i] * dy
 *   dphi = sum over tokens of x (r * dmix)      db = sum over tokens of dl      dalpha = sum over tokens of dl * mix
 * Sinkhorn's backward keeps denominators only: a matrix before a division is the one after it times its denominator.
 *
 * Shapes: x, dx [..., HC, C], any leading dimensions; HC is 1 to 16, C 1 or more; phi, dphi [K, M]; b, db [M]; alphas [1];
 * h_pre, h_post [..., HC]; h_res [..., HC, HC]; mix [..., M]; rstd [rows], r of each token; y, dy [..., C]. tmax is 1 to 64.
 * dtypes: x f32, bf16 or f16; y, dy, dx as x; phi f32, bf16 or f16, and dphi f32 or as phi; each of b, the alphas and their
 * gradients f32 or as x; the others f32. The arithmetic is f32, rounded once, at the store. mix is Inf beyond f32's range.
 * Strides: the last one of x, dx, y, dy is 1, their leading ones are free (three at most: tigon.h); the others contiguous.
 * In place: nothing; any overlap with an output is an error.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_MHC_COEFFS_H
#define TIGON_OP_MHC_COEFFS_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_mhc_coeffs_fwd_args {
  tigon_tensor x;          /* in  [..., HC, C] */
  tigon_tensor phi;        /* in  [K, M] */
  tigon_tensor b;          /* in  [M] */
  tigon_tensor alpha_pre;  /* in  [1] */
  tigon_tensor alpha_post; /* in  [1] */
  tigon_tensor alpha_res;  /* in  [1] */
  tigon_tensor h_pre;      /* out [..., HC] */
  tigon_tensor h_post;     /* out [..., HC] */
  tigon_tensor h_res;      /* out [..., HC, HC] */
  tigon_tensor y;          /* out [..., C]; absent: not computed */
  tigon_tensor mix;        /* out [..., M]; absent: not stored */
  tigon_tensor rstd;       /* out [rows]; absent: not stored */
  int64_t tmax;            /* 20 in the paper */
  double rms_eps;          /* >= 0 */
  double pre_eps;          /* >= 0 */
  double sinkhorn_eps;     /* >= 0 */
  double post_mult;        /* > 0; 2 in the paper */
  uint64_t reserved[4];
} tigon_mhc_coeffs_fwd_args;

TIGON_API tigon_status tigon_mhc_coeffs_fwd(tigon_context *context, const tigon_mhc_coeffs_fwd_args *args);

typedef struct tigon_mhc_coeffs_bwd_args {
  tigon_tensor dh_pre;      /* in  [..., HC]; absent: 0, as the next three */
  tigon_tensor dh_post;     /* in  [..., HC] */
  tigon_tensor dh_res;      /* in  [..., HC, HC] */
  tigon_tensor dy;          /* in  [..., C] */
  tigon_tensor x;           /* in  [..., HC, C], forward's */
  tigon_tensor phi;         /* in  [K, M], forward's */
  tigon_tensor b;           /* in  [M], forward's */
  tigon_tensor alpha_pre;   /* in  [1], forward's */
  tigon_tensor alpha_post;  /* in  [1], forward's */
  tigon_tensor alpha_res;   /* in  [1], forward's */
  tigon_tensor mix;         /* in  [..., M], forward's */
  tigon_tensor rstd;        /* in  [rows], forward's */
  tigon_tensor dx;          /* out [..., HC, C]; absent: not computed, as the others */
  tigon_tensor dphi;        /* out [K, M] */
  tigon_tensor db;          /* out [M] */
  tigon_tensor dalpha_pre;  /* out [1] */
  tigon_tensor dalpha_post; /* out [1] */
  tigon_tensor dalpha_res;  /* out [1] */
  int64_t tmax;             /* forward's, as the next four */
  double pre_eps;
  double sinkhorn_eps;
  double post_mult;
  int accumulate_dphi; /* 1: dphi, db and the dalphas +=, 0: = */
  void *workspace;     /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_mhc_coeffs_bwd_args;

TIGON_API tigon_status tigon_mhc_coeffs_bwd(tigon_context *context, const tigon_mhc_coeffs_bwd_args *args);

/* Bytes of workspace that tigon_mhc_coeffs_bwd() needs for these arguments (their data and workspace are not read). */
TIGON_API tigon_status tigon_mhc_coeffs_bwd_workspace(tigon_context *context, const tigon_mhc_coeffs_bwd_args *args,
                                                      size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
