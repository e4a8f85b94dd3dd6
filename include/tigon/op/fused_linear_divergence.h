/* fused_linear_divergence: distillation through both language-model heads. It never stores all logits [BT, V].
 *
 *   u = hidden W^T + bias of the student, w = teacher_hidden W'^T + teacher_bias of the teacher      (linear.h)
 *   x = softcap * tanh(u * logit_scale / softcap), without a softcap u * logit_scale
 *   t = the same of w, with teacher_softcap and teacher_logit_scale
 *   D_n = how far softmax(x_n / temperature) is from softmax(t_n / temperature), by `kind`          (divergence.h)
 *   C_n = log sum_v exp(x[n, v]) - x[n, label_n], the cross entropy, without the temperature
 *   token_loss_n = token_scale_n * (weight_soft * D_n + weight_hard * C_n)
 *   loss = sum_n token_loss_n / N, N = denominator, or the number of tokens that count; 0 where N is 0
 *   soft_loss = sum_n D_n / N, hard_loss = sum_n C_n / N
 *   dhidden, dweight, dbias = dloss * grad_scale * the gradients of loss; the teacher gets none
 * The softcap comes before the temperature, as with cross_entropy.h's softcap_first, because the cross entropy has no
 * temperature. With by_temperature_squared D_n is multiplied by temperature^2 in token_loss and the gradients.
 * The call works on tokens in chunks that fit the workspace. A chunk takes a product for each head, divergence with the
 * student's gradient in place of its logits, and linear's two products of that gradient.
 * With has_ignore_index a token whose label is ignore_index does not count: its losses and dhidden are 0. Where the host reads
 * labels such a token is skipped, whatever hidden and teacher_hidden hold. A label out of range does not count either if the
 * call has `error`, or a device found it.
 *
 * A teacher with fewer classes (V' < V) gives the others a probability of 0, and for cosine an element of 0. reverse_kl refuses
 * it, because its loss would be Inf. A teacher with more classes is refused without truncate_teacher. With truncate_teacher the
 * teacher has only its first V classes, and its probabilities are a softmax over them.
 *
 * Shapes: hidden, dhidden [..., H] of BT rows; weight, dweight [V, H]; bias, dbias [V]; teacher_hidden [..., H'] with
 *   hidden's leading dimensions; teacher_weight [V', H']; teacher_bias [V']; labels as hidden without H, or [BT], as are
 *   token_scale and token_loss; all others [1].
 * dtypes: hidden f32, bf16, f16; weight, dhidden and the teacher's tensors as hidden; biases f32 or as hidden; dweight,
 *   dbias f32 or as weight (summed in f32 and rounded once either way); labels i32 or i64; error i32; all others f32.
 *   u and w are stored in hidden's dtype, as linear's, or with logits_in_f32 in f32. Their gradients are stored in hidden's
 *   dtype. A softcap's result is not rounded.
 * Strides: hidden, dhidden, and teacher_hidden beside them: last 1, leading ones collapse to one row pitch each (tigon.h);
 *   weights and dweight any row pitch; all others contiguous.
 * There is no backward: the gradients come with the loss.
 * Workspace: any size from the minimum up. The minimum is that of fused_linear_cross_entropy.h, with two rows of logits in place
 *   of one. It has 4 bytes more per token for each of soft_loss, hard_loss and an absent token_loss. With a 16-bit dweight it has
 *   12 bytes more per token, or 16 with weight_hard. So for 8192 tokens, V = 128256, H = 8192, 1 MiB is enough with logits of
 *   16 bits, and 1.25 MiB with f32.
 * In place: dhidden may be hidden.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_FUSED_LINEAR_DIVERGENCE_H
#define TIGON_OP_FUSED_LINEAR_DIVERGENCE_H

#include <tigon/op/divergence.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_fused_linear_divergence_fwd_args {
  tigon_tensor hidden;         /* in  [..., H] */
  tigon_tensor weight;         /* in  [V, H] */
  tigon_tensor bias;           /* in  [V]; absent: none */
  tigon_tensor teacher_hidden; /* in  [..., H'] */
  tigon_tensor teacher_weight; /* in  [V', H'] */
  tigon_tensor teacher_bias;   /* in  [V']; absent: none */
  tigon_tensor labels;         /* in  [...]; absent, only without weight_hard: all tokens count */
  tigon_tensor token_scale;    /* in  [BT] f32; absent: all 1 */
  tigon_tensor denominator;    /* in  [1] f32; absent: the number of tokens that count */
  tigon_tensor dloss;          /* in  [1] f32, for the gradients; absent: 1 */
  tigon_tensor loss;           /* out [1] f32 */
  tigon_tensor soft_loss;      /* out [1] f32; may be absent, as all that follow */
  tigon_tensor hard_loss;      /* out [1] f32 */
  tigon_tensor token_loss;     /* out [BT] f32 */
  tigon_tensor error;          /* out [1] i32, set to 1 by a label out of range and else not written */
  tigon_tensor dhidden;        /* out [..., H] */
  tigon_tensor dweight;        /* out [V, H] */
  tigon_tensor dbias;          /* out [V] */
  tigon_divergence_kind kind;
  double beta;        /* 0..1, for jsd */
  double temperature; /* 0 means 1; else > 0 */
  double softcap;     /* 0: none; else > 0 */
  double logit_scale; /* 0 means 1; else > 0 */
  double teacher_softcap;
  double teacher_logit_scale;
  double weight_soft;   /* 0 means 1; else > 0 */
  double weight_hard;   /* 0: no cross entropy; else > 0 */
  int has_ignore_index; /* 1: ignore_index counts */
  int64_t ignore_index;
  int by_temperature_squared;
  int truncate_teacher;   /* 1: classes of the teacher beyond V are left out */
  int logits_in_f32;      /* 1: logits are not rounded to hidden's dtype */
  int accumulate_dweight; /* 1: dweight += and dbias += , 0: = */
  double grad_scale;      /* 0 means 1 */
  void *workspace;        /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_fused_linear_divergence_fwd_args;

TIGON_API tigon_status tigon_fused_linear_divergence_fwd(tigon_context *context,
                                                         const tigon_fused_linear_divergence_fwd_args *args);
/* Bytes of the smallest workspace that works and of the one recommended; either pointer may be NULL. */
TIGON_API tigon_status tigon_fused_linear_divergence_fwd_workspace(tigon_context *context,
                                                                   const tigon_fused_linear_divergence_fwd_args *args,
                                                                   size_t *minimum, size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
