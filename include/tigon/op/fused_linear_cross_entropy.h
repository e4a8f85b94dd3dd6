/* fused_linear_cross_entropy: the language-model head and its loss without ever holding the logits [BT, V].
 *
 *   logits = hidden W^T + bias, loss = cross_entropy(logits, labels)        (linear.h, cross_entropy.h)
 * The tokens are worked off in chunks that fit the workspace; ignored tokens are skipped before the GEMM where their
 * labels can be read by the host: their losses, lse, entropy and dhidden are 0 and their argmax is -1, whatever their
 * hidden holds (elsewhere their lse is stored as in cross_entropy). Forward gives the loss and, when their tensors are
 * there, the gradients in the same call; backward recomputes the logits and gives the gradients alone.
 *
 * Shapes: hidden, dhidden [..., H] of BT rows; weight, dweight [V, H]; bias, dbias [V]; labels as
 *   hidden without H, or [BT]; so is each other tensor that has one element per token.
 * dtypes: hidden f32, bf16, f16; weight and dhidden as hidden; bias f32 or as hidden; dweight, dbias f32 or as weight
 *   (summed in f32 and rounded once either way). The logits of a chunk are held in hidden's dtype, as linear would, or with
 *   logits_in_f32 in f32; their gradients are rounded to hidden's dtype before linear's backward either way.
 * Strides: hidden, dhidden: last 1, leading ones collapse to one row pitch (tigon.h); weight, dweight any row pitch.
 * Workspace: any size from tigon_fused_linear_cross_entropy_workspace()'s minimum up; more bytes make larger chunks, and
 *   `recommended` is where larger chunks stop to pay. The minimum is one row of logits or, if larger, one f32 row of a
 *   16-bit dweight, and besides: 4 bytes a token without out.token_loss, 8 with out.correct but without out.argmax, 4
 *   with a 16-bit dweight but without out.lse, as much with dentropy, too, but without out.entropy; 4 V for a 16-bit dbias.
 *   So 1 MiB is enough for 8192 tokens, V = 128256, H = 8192. With logits_in_f32 a row is of f32, and, for gradients, of
 *   16 bits besides. A 16-bit dweight is written as one sum over all tokens. Where their logits do not fit, and it is
 *   dense and not accumulated, BT <= H tokens of which none is skipped have their gradients in dweight's own memory until
 *   then; else V * H f32 sums lie in the workspace. Where these do not fit it is made panel by panel of the vocabulary,
 *   for one more GEMM of the logits; with dhidden in hidden's place, for two.
 * Losses and dhidden do not depend on the workspace where linear's grades include batch; the order of the sums over
 *   tokens in dweight and dbias does.
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
  tigon_cross_entropy_outputs out; /* forward only; must be absent in backward, but for error */
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
