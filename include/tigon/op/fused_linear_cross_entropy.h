/* fused_linear_cross_entropy: the language-model head and its loss. It never stores all logits [BT, V].
 *
 *   logits = hidden W^T + bias, loss = cross_entropy(logits, labels)        (linear.h, cross_entropy.h)
 * The call works on tokens in chunks that fit the workspace. Where the host can read the labels, ignored tokens are skipped
 * before the GEMM. Their losses, lse, entropy and dhidden are 0 and their argmax is -1, whatever their hidden holds.
 * Elsewhere their lse is stored as in cross_entropy. Forward gives the loss. In the same call it gives each gradient whose
 * tensor is present. Backward computes the logits again and gives only the gradients.
 *
 * Shapes: hidden, dhidden [..., H] of BT rows; weight, dweight [V, H]; bias, dbias [V]; labels as
 *   hidden without H, or [BT]; so is each other tensor that has one element per token.
 * dtypes: hidden f32, bf16, f16; weight and dhidden as hidden; bias f32 or as hidden; dweight, dbias f32 or as weight
 *   (summed in f32 and rounded once either way). The logits of a chunk are stored in hidden's dtype, as linear's, or with
 *   logits_in_f32 in f32. Their gradients are rounded to hidden's dtype before linear's backward either way.
 * Strides: hidden, dhidden: last 1, leading ones collapse to one row pitch (tigon.h); weight, dweight any row pitch.
 * Workspace: any size from the minimum of tigon_fused_linear_cross_entropy_workspace() up. More bytes make larger chunks, and
 *   above `recommended` larger chunks are no faster. The minimum is one row of logits or, if larger, one f32 row of a 16-bit
 *   dweight, and besides
 *   - 4 bytes per token without out.token_loss,
 *   - 8 bytes per token with out.correct but without out.argmax,
 *   - 4 bytes per token with a 16-bit dweight but without out.lse,
 *   - 4 bytes more per token in that case with dentropy but without out.entropy,
 *   - 4 V bytes for a 16-bit dbias.
 *   So 1 MiB is enough for 8192 tokens, V = 128256, H = 8192. With logits_in_f32 a row of logits is f32. For gradients it
 *   needs a row of 16 bits besides.
 * A 16-bit dweight is written as one sum over all tokens. Where the logits of all tokens do not fit the workspace:
 *   - If dweight is dense and not accumulated, BT <= H, and no token is skipped, dweight's own memory has the gradients of the
 *     logits until then.
 *   - Else V * H f32 sums lie in the workspace.
 *   - Where these do not fit, dweight is made panel by panel of the vocabulary. That takes one more GEMM of the logits, or two
 *     with dhidden in hidden's place.
 * Losses and dhidden do not depend on the workspace where linear's grades include batch. The order of the sums over tokens in
 *   dweight and dbias does.
 * In place: dhidden may be hidden.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_FUSED_LINEAR_CROSS_ENTROPY_H
#define TIGON_OP_FUSED_LINEAR_CROSS_ENTROPY_H

#include <tigon/op/cross_entropy.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_fused_linear_cross_entropy_args {
  tigon_tensor hidden; /* in  [..., H] */
  tigon_tensor weight; /* in  [V, H] */
  tigon_tensor bias;   /* in  [V]; absent: none */
  tigon_tensor labels; /* in  [...] */
  tigon_cross_entropy_options options;
  tigon_cross_entropy_outputs out; /* forward only; in backward only error may be present */
  tigon_tensor dloss;              /* in  [1] or [BT] f32, for the gradients; absent: 1 */
  tigon_tensor dentropy;           /* in  [BT] f32, for the gradients; absent: 0 */
  double grad_scale;               /* for the gradients; 0 means 1 */
  tigon_tensor dhidden;            /* out [..., H]; absent: not computed */
  tigon_tensor dweight;            /* out [V, H]; absent: not computed */
  tigon_tensor dbias;              /* out [V]; absent: not computed */
  int accumulate_dweight;          /* 1: dweight += and dbias += , 0: = */
  int logits_in_f32;               /* 1: logits are not rounded to hidden's dtype */
  void *workspace;                 /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_fused_linear_cross_entropy_args;

TIGON_API tigon_status tigon_fused_linear_cross_entropy_fwd(tigon_context *context,
                                                            const tigon_fused_linear_cross_entropy_args *args);
TIGON_API tigon_status tigon_fused_linear_cross_entropy_bwd(tigon_context *context,
                                                            const tigon_fused_linear_cross_entropy_args *args);

/* Bytes of the smallest workspace that works and of the one recommended; either pointer may be NULL. */
TIGON_API tigon_status tigon_fused_linear_cross_entropy_workspace(tigon_context *context,
                                                                  const tigon_fused_linear_cross_entropy_args *args,
                                                                  size_t *minimum, size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
