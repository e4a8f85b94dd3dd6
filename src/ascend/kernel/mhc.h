/* What the launchers of hyper-connections hand to their kernels. */
#ifndef TIGON_ASCEND_KERNEL_MHC_H
#define TIGON_ASCEND_KERNEL_MHC_H

#include "ascend/kernel/rows.h"

enum { MHC_LANES = 8 /* tokens whose formulas are vectors */, MHC_MOST = 16 /* streams */ };

/* Absent tensors are NULL. */
typedef struct mhc_post_res_arguments {
  gm_space in_space, out_space, token_space;
  gm_rows x, dx, o, f, df;
  gm_ptr h_res, h_post, dh_res, dh_post;
  int64_t tokens, in, out, cols, chunk; /* chunk: columns on chip */
  int64_t dtype, backward;
} mhc_post_res_arguments;

/* All kernels of mhc_coeffs. `record` [tokens, pitch] is the workspace: a token's dl, then its rstd * dmix; its h_pre; what of x dx takes
 * away; rstd. */
typedef struct mhc_coeffs_arguments {
  gm_space space, token_space;
  gm_rows x, dx, dy;
  gm_ptr phi, b, alpha[3], mix, rstd, h[3];
  gm_ptr record, dots,
      totals; /* dots [tokens, streams], of dy and x; totals [blocks, coeffs + 3] of db and the dalphas */
  gm_ptr dphi;
  int64_t tokens, streams, cols, coeffs, pitch, chunk; /* chunk: channels of a panel of phi */
  int64_t dtype, phi_dtype, b_dtype, alpha_dtype[3], dphi_dtype, accumulate, tmax;
  float rms_eps, pre_eps, sinkhorn_eps, post_mult;
} mhc_coeffs_arguments;

/* Where a token's record has h_pre, and the two numbers. */
AICORE int64_t mhc_record_h(const mhc_coeffs_arguments *a) { return a->coeffs; }
AICORE int64_t mhc_record_back(const mhc_coeffs_arguments *a) { return a->coeffs + a->streams; }

void mhc_post_res(ub_arena *ub, const void *arguments);
void mhc_logits(ub_arena *ub, const void *arguments);
void mhc_sinkhorn(ub_arena *ub, const void *arguments);
void mhc_sinkhorn_bwd(ub_arena *ub, const void *arguments);
void mhc_dmix(ub_arena *ub, const void *arguments);
void mhc_dx(ub_arena *ub, const void *arguments);
void mhc_dphi(ub_arena *ub, const void *arguments);

#endif
