/* attn_res: attention residuals. A layer's input is a weighted sum of the outputs of N earlier blocks. Each token has its own
 * weights (Kimi Team 2026, arXiv:2603.15031).
 *
 * Forward, for each token, whose row of block i is v_i [D]:
 *   rstd_i = 1 / sqrt(mean(v_i^2) + eps)     s_i = rstd_i * sum over d of q * wn * v_i
 *   a = softmax of s over the N blocks       h = sum over i of a_i * v_i
 * Backward, with c = q * wn:
 *   da_i = sum over d of dh * v_i            ds_i = a_i * (da_i - sum over j of a_j * da_j)
 *   dv_i = a_i * dh + ds_i * rstd_i * (c - s_i * rstd_i * v_i / D)
 *   u = sum over tokens and blocks of ds_i * rstd_i * v_i
 *   dq = u * wn                              dwn = u * q
 * Without a block (N = 0) h is 0. A NaN stays in its token's row of h, a and dv.
 *
 * Shapes: v, dv [N, ..., D], any N, any leading dimensions of tokens; h, dh [..., D]; a, rstd [..., N]; q, wn, dq, dwn [D].
 * Blocks: v is one tensor, whose first stride leads from a block to the next. Blocks that lie anywhere else need no copy:
 *   v_blocks has the address of each. v still gives the shape, the dtype and the strides that all blocks share. So a kernel
 *   has one layout and N addresses. v's data and its first stride are not used then, and data may be NULL. The same holds for
 *   dv and dv_blocks. Either list may be given without the other. The list is read before the call returns.
 * dtypes: v f32, bf16 or f16; h, dh, dv as v; each of q, wn, dq, dwn f32 or as v; a, rstd f32. Arithmetic in f32, one
 *   rounding at the store.
 * Strides: the last one is 1, those of tokens (three at most: tigon.h) and of blocks are free; all others contiguous.
 * In place: nothing. An output that overlaps another tensor or block is an error.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_ATTN_RES_H
#define TIGON_OP_ATTN_RES_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_attn_res_fwd_args {
  tigon_tensor v;              /* in  [N, ..., D] */
  const void *const *v_blocks; /* [N] addresses of the device's memory, in host memory; NULL: v has the blocks */
  tigon_tensor q;              /* in  [D] */
  tigon_tensor wn;             /* in  [D], the weight of the blocks' norm */
  tigon_tensor h;              /* out [..., D] */
  tigon_tensor a;              /* out [..., N], for backward; absent: not stored */
  tigon_tensor rstd;           /* out [..., N], for backward; absent: not stored */
  double eps;                  /* >= 0, finite; 1e-6 is usual */
  void *workspace;             /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_attn_res_fwd_args;

TIGON_API tigon_status tigon_attn_res_fwd(tigon_context *context, const tigon_attn_res_fwd_args *args);

typedef struct tigon_attn_res_bwd_args {
  tigon_tensor dh;             /* in  [..., D] */
  tigon_tensor v;              /* in  [N, ..., D], forward's */
  const void *const *v_blocks; /* [N] as forward's */
  tigon_tensor q;              /* in  [D], forward's */
  tigon_tensor wn;             /* in  [D], forward's */
  tigon_tensor a;              /* in  [..., N], forward's */
  tigon_tensor rstd;           /* in  [..., N], forward's */
  tigon_tensor dv;             /* out [N, ..., D] */
  void *const *dv_blocks;      /* [N] as v_blocks */
  tigon_tensor dq;             /* out [D]; absent: not computed */
  tigon_tensor dwn;            /* out [D]; absent: not computed */
  int accumulate_dq;           /* 1: dq and dwn +=, 0: = */
  void *workspace;             /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_attn_res_bwd_args;

TIGON_API tigon_status tigon_attn_res_bwd(tigon_context *context, const tigon_attn_res_bwd_args *args);

/* Bytes of workspace that these calls need for their arguments (data, addresses and workspace are not read). */
TIGON_API tigon_status tigon_attn_res_fwd_workspace(tigon_context *context, const tigon_attn_res_fwd_args *args,
                                                    size_t *bytes);
TIGON_API tigon_status tigon_attn_res_bwd_workspace(tigon_context *context, const tigon_attn_res_bwd_args *args,
                                                    size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
