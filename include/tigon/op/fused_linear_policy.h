/* fused_linear_policy: a policy loss of the GRPO family from the hidden states of sampled tokens, and its gradients in the same
 * call. It never stores all logits [N, V].
 *
 *   logprob, entropy = linear_logprob(hidden, weight, bias, labels)       (linear_logprob.h)
 *   loss, token_loss, kl, clip_low, clip_high, mean_entropy, mean_ratio = policy_loss(logprob, entropy, ..)    (policy_loss.h)
 *   dhidden, dweight, dbias = dloss * grad_scale * d loss / d hidden, d weight, d bias
 * A token counts if its label is not ignore_index. There is no other mask. A label out of range does not count
 * (cross_entropy.h). Where the host reads labels, tokens that do not count are skipped before the products. Their logprob,
 * entropy, token_loss and dhidden are 0.
 * The call has N tokens of S sequences: a padded batch [S, T, H] without segments, or any hidden of N rows with them.
 *
 * Cost: a matrix product has 2 * N * V * H operations.
 *   At token level (every kind but VESPO, without sequence_level) the call has three products, or two with only one of dhidden
 *   and dweight. A chunk's logits are made, its tokens' gradients follow, and nothing of a chunk is made again.
 *   At sequence level a gradient needs the log-probabilities of its whole sequence. Whole sequences whose logits fit the
 *   workspace are one chunk, with three products. The logits of a longer sequence are made twice, which is a fourth product for
 *   its tokens. Where the host cannot read segments, the whole batch is treated as one sequence.
 *   A 16-bit dweight whose sums do not fit also takes a fourth product (fused_linear_cross_entropy.h).
 *   `tigon plan fused_linear_policy` prints the products of a call.
 *
 * Shapes: hidden, dhidden [..., H] of N rows; weight, dweight [V, H]; bias, dbias [V]; segments [S + 1]; advantage [S], with
 *   token_advantage one per token; ratio [S], with token_ratio one per token; labels, old, ref, logprob, entropy, token_loss one
 *   per token: as hidden without H, or [N]; all others [1].
 * dtypes: hidden f32, bf16, f16; weight and dhidden as hidden; bias f32 or as hidden; dweight, dbias f32 or as weight (summed
 *   in f32 and rounded once either way); labels and segments i32 or i64; error i32; all others f32. Logits are stored in
 *   hidden's dtype, or with logits_in_f32 in f32.
 * Strides: hidden, dhidden: last 1, leading ones collapse to one row pitch (tigon.h); weight, dweight any row pitch; all others
 *   contiguous.
 * Workspace: any size from the minimum up. The minimum is a row of logits, or one f32 row of a 16-bit dweight, and at most 16
 *   bytes per token. 1 MiB is enough for 8192 tokens, V = 128256, H = 8192. Besides the sums of a 16-bit dweight at most 512 MiB
 *   are recommended. Where a gradient depends on all of a sequence, a device has up to 1 GiB for the logits of one. Losses,
 *   metrics and dhidden do not depend on the workspace where linear's grades include batch. The order of the sums over tokens in
 *   dweight and dbias does.
 * In place: dhidden may be hidden.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_FUSED_LINEAR_POLICY_H
#define TIGON_OP_FUSED_LINEAR_POLICY_H

#include <tigon/op/policy_loss.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_fused_linear_policy_fwd_args {
  tigon_tensor hidden;      /* in [..., H] */
  tigon_tensor weight;      /* in [V, H] */
  tigon_tensor labels;      /* in [...] */
  tigon_tensor advantage;   /* in [S] or [N] f32 */
  tigon_tensor bias;        /* in [V], may be absent, as all that follow */
  tigon_tensor segments;    /* in [S + 1]; absent: hidden is [S, T, H] */
  tigon_tensor old;         /* in [N] f32 */
  tigon_tensor ref;         /* in [N] f32 */
  tigon_tensor ratio;       /* in [S] or [N] f32, > 0 */
  tigon_tensor denominator; /* in [1] f32 */
  tigon_tensor dloss;       /* in [1] f32, for the gradients; absent: 1 */
  tigon_policy_loss_options options;
  double grad_scale;    /* for the gradients; 0 means 1 */
  int has_ignore_index; /* 1: ignore_index counts */
  int64_t ignore_index;
  double softcap;            /* 0: none; else > 0 */
  double temperature;        /* 0 means 1; else > 0 */
  int softcap_first;         /* 1: the softcap comes before the temperature */
  int logits_in_f32;         /* 1: logits are not rounded to hidden's dtype */
  tigon_tensor loss;         /* out [1] f32 */
  tigon_tensor logprob;      /* out [N] f32 */
  tigon_tensor entropy;      /* out [N] f32; may be absent, as all that follow */
  tigon_tensor token_loss;   /* out [N] f32 */
  tigon_tensor kl;           /* out [1] f32 */
  tigon_tensor clip_low;     /* out [1] f32 */
  tigon_tensor clip_high;    /* out [1] f32 */
  tigon_tensor mean_entropy; /* out [1] f32 */
  tigon_tensor mean_ratio;   /* out [1] f32 */
  tigon_tensor error;        /* out [1] i32, set to 1 by a label out of range and else not written */
  tigon_tensor dhidden;      /* out [..., H]; absent: not computed, as the next two */
  tigon_tensor dweight;      /* out [V, H] */
  tigon_tensor dbias;        /* out [V] */
  int accumulate_dweight;    /* 1: dweight += and dbias += , 0: = */
  void *workspace;           /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_fused_linear_policy_fwd_args;

TIGON_API tigon_status tigon_fused_linear_policy_fwd(tigon_context *context,
                                                     const tigon_fused_linear_policy_fwd_args *args);
/* Bytes of the smallest workspace that works and of the one recommended; either pointer may be NULL. */
TIGON_API tigon_status tigon_fused_linear_policy_fwd_workspace(tigon_context *context,
                                                               const tigon_fused_linear_policy_fwd_args *args,
                                                               size_t *minimum, size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
