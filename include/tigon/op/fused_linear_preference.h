/* fused_linear_preference: a preference loss from the hidden states of whole sequences, and its gradients in the same call. It never
 * stores all logits [N, V].
 *
 *   logprob = linear_logprob(hidden, weight, bias, labels)                (linear_logprob.h)
 *   logps[s] = the sum of logprob over the tokens of sequence s that count, counts[s] = their number
 *   loss, pair_loss, rewards, accuracy, margin = preference_loss(logps, ref, labels = desirable, shift, denominator)
 *                                                                         (preference_loss.h)
 * `means` passes the counts to preference_loss. `nll` passes the sums and counts of the chosen sequences for its NLL.
 *   dhidden, dweight, dbias = dloss * grad_scale * d loss / d hidden, d weight, d bias
 * A token counts if its label is not ignore_index. A label out of range does not count (cross_entropy.h). Where the host
 * reads labels, tokens that do not count are skipped before the products. Their logprob and dhidden are 0.
 * The call has N tokens of S sequences: a padded batch [S, T, H] without segments, or any hidden of N rows with them. For kinds
 * of pairs, the first S / 2 sequences are the chosen ones.
 *
 * Cost: a matrix product has 2 * N * V * H operations.
 *   A gradient needs the log-probabilities of its pair, or of its single sequence. As many whole pairs or sequences as have logits
 *   that fit the workspace are one group. A group's logits are made once. It has three products, or two with only one of dhidden and
 *   dweight. The logits of a longer pair or sequence are made twice, which is a fourth product for its tokens. Where the host cannot
 *   read segments, the whole batch is one group.
 *   A 16-bit dweight whose sums do not fit takes another product (fused_linear_cross_entropy.h).
 *   `tigon plan fused_linear_preference` prints the products of a call.
 *
 * Shapes: hidden, dhidden [..., H] of N rows; weight, dweight [V, H]; bias, dbias [V]; segments [S + 1]; labels, logprob one per
 *   token: as hidden without H, or [N]; ref, desirable, logps, rewards [S]; pair_loss [S / 2], for single sequences [S];
 *   shift [1], or as pair_loss; all others [1].
 * dtypes: hidden f32, bf16, f16; weight and dhidden as hidden; bias f32 or as hidden; dweight, dbias f32 or as weight (summed
 *   in f32 and rounded once either way); labels, segments and desirable i32 or i64; error i32; all others f32. Logits are
 *   stored in hidden's dtype, or with logits_in_f32 in f32. Sums over tokens are in f64.
 * Strides: hidden, dhidden: last 1, leading ones collapse to one row pitch (tigon.h); weight, dweight any row pitch; all others
 *   contiguous.
 * Workspace: any size from the minimum up. The minimum is a row of logits, or one f32 row of a 16-bit dweight, and at most 8 bytes
 *   per token and 16 per sequence. 1 MiB is enough for 8192 tokens, V = 128256, H = 8192. Besides the sums of a 16-bit dweight at
 *   most 512 MiB are recommended, or on a device up to 1 GiB for the logits of one pair. Losses, metrics and dhidden do not
 *   depend on the workspace where linear's grades include batch. The order of the sums over tokens in dweight and dbias does.
 * In place: dhidden may be hidden.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_FUSED_LINEAR_PREFERENCE_H
#define TIGON_OP_FUSED_LINEAR_PREFERENCE_H

#include <tigon/op/preference_loss.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_fused_linear_preference_fwd_args {
  tigon_tensor hidden;      /* in [..., H] */
  tigon_tensor weight;      /* in [V, H] */
  tigon_tensor labels;      /* in [...] */
  tigon_tensor bias;        /* in [V], may be absent, as all that follow */
  tigon_tensor segments;    /* in [S + 1]; absent: hidden is [S, T, H] */
  tigon_tensor ref;         /* in [S] f32, sums of log-probabilities; absent: 0; absent with ORPO */
  tigon_tensor desirable;   /* in [S], present for single sequences, else absent */
  tigon_tensor shift;       /* in [1] or as pair_loss f32; absent: 0; absent with kinds that do not name it */
  tigon_tensor denominator; /* in [1] f32; absent: the number of pairs or sequences */
  tigon_tensor dloss;       /* in [1] f32, for the gradients; absent: 1 */
  tigon_preference_loss_options options;
  int means;            /* 1: logps and ref are divided by the tokens that count */
  int nll;              /* 1: the loss has the NLL of the chosen sequences; of pairs */
  double grad_scale;    /* for the gradients; 0 means 1 */
  int has_ignore_index; /* 1: ignore_index counts */
  int64_t ignore_index;
  double softcap;         /* 0: none; else > 0 */
  double temperature;     /* 0 means 1; else > 0 */
  int softcap_first;      /* 1: the softcap comes before the temperature */
  int logits_in_f32;      /* 1: logits are not rounded to hidden's dtype */
  tigon_tensor loss;      /* out [1] f32 */
  tigon_tensor logprob;   /* out [N] f32 */
  tigon_tensor logps;     /* out [S] f32; may be absent, as all that follow */
  tigon_tensor pair_loss; /* out [S / 2] or [S] f32 */
  tigon_tensor rewards;   /* out [S] f32 */
  tigon_tensor accuracy;  /* out [1] f32 */
  tigon_tensor margin;    /* out [1] f32 */
  tigon_tensor error;     /* out [1] i32, set to 1 by a label out of range and else not written */
  tigon_tensor dhidden;   /* out [..., H]; absent: not computed, as the next two */
  tigon_tensor dweight;   /* out [V, H] */
  tigon_tensor dbias;     /* out [V] */
  int accumulate_dweight; /* 1: dweight += and dbias += , 0: = */
  void *workspace;        /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_fused_linear_preference_fwd_args;

TIGON_API tigon_status tigon_fused_linear_preference_fwd(tigon_context *context,
                                                         const tigon_fused_linear_preference_fwd_args *args);
/* Bytes of the smallest workspace that works and of the one recommended; either pointer may be NULL. */
TIGON_API tigon_status tigon_fused_linear_preference_fwd_workspace(tigon_context *context,
                                                                   const tigon_fused_linear_preference_fwd_args *args,
                                                                   size_t *minimum, size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
