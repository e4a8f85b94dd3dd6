/* mhc_post_res: streams mixed by the coefficients of each token (Xie et al. 2025, arXiv:2512.24880).
 *
 * A token has I streams of C channels, x [I, C], and gets J of them, o [J, C]. In the paper both are HC. Forward:
 *   o[j] = sum over i of h_res[j, i] * x[i] + h_post[j] * f
 * Backward, with g = d o:
 *   dx[i] = sum over j of h_res[j, i] * g[j]    dh_res[j, i] = g[j] . x[i]
 *   df = sum over j of h_post[j] * g[j]         dh_post[j] = g[j] . f
 * With J = 1 and without f it is the paper's pre, y = sum over i of h_pre[i] * x[i], where h_res takes h_pre's place.
 *
 * Shapes: x, dx [..., I, C], any leading dimensions; o, g [..., J, C]; f, df [..., C]; h_post, dh_post [..., J];
 * h_res, dh_res [..., J, I]. I and J are 1 to 16, C 1 or more.
 * dtypes: x f32, bf16 or f16; f, o, g, dx, df as x; h_post, h_res and their gradients f32. The arithmetic is f32, rounded once, at
 * the store.
 * Strides: the last one of x, f, o and their gradients is 1, their leading ones are free (three at most: tigon.h); the others
 * contiguous.
 * In place: nothing; any overlap with an output is an error. f and h_post are both present or both absent.
 * Errors: INVALID, ALIAS, UNSUPPORTED. */
#ifndef TIGON_OP_MHC_POST_RES_H
#define TIGON_OP_MHC_POST_RES_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_mhc_post_res_fwd_args {
  tigon_tensor x;      /* in  [..., I, C] */
  tigon_tensor f;      /* in  [..., C]; absent: 0 */
  tigon_tensor h_post; /* in  [..., J]; present with f */
  tigon_tensor h_res;  /* in  [..., J, I] */
  tigon_tensor o;      /* out [..., J, C] */
  uint64_t reserved[4];
} tigon_mhc_post_res_fwd_args;

TIGON_API tigon_status tigon_mhc_post_res_fwd(tigon_context *context, const tigon_mhc_post_res_fwd_args *args);

typedef struct tigon_mhc_post_res_bwd_args {
  tigon_tensor g;       /* in  [..., J, C], the gradient of o */
  tigon_tensor x;       /* in  [..., I, C], forward's */
  tigon_tensor f;       /* in  [..., C], forward's; absent: 0 */
  tigon_tensor h_post;  /* in  [..., J], forward's; present with f */
  tigon_tensor h_res;   /* in  [..., J, I], forward's */
  tigon_tensor dx;      /* out [..., I, C]; absent: not computed, as the others */
  tigon_tensor df;      /* out [..., C]; absent without f, as dh_post */
  tigon_tensor dh_post; /* out [..., J] */
  tigon_tensor dh_res;  /* out [..., J, I] */
  uint64_t reserved[4];
} tigon_mhc_post_res_bwd_args;

TIGON_API tigon_status tigon_mhc_post_res_bwd(tigon_context *context, const tigon_mhc_post_res_bwd_args *args);

#ifdef __cplusplus
}
#endif

#endif
