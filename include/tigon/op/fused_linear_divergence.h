/* fused_linear_divergence: distillation through both language-model heads without ever holding the logits [BT, V].
 *
 *   u = hidden W^T + bias of the student, w = teacher_hidden W'^T + teacher_bias of the teacher      (linear.h)
 *   x = softcap * tanh(u * logit_scale / softcap), without a softcap u * logit_scale; t of w by the teacher's
 *   D_n = how far softmax(x_n / temperature) is from softmax(t_n / temperature), by `kind`          (divergence.h)
 *   C_n = log sum_v exp(x[n, v]) - x[n, label_n], the cross entropy, which knows no temperature
 *   token_loss_n = token_scale_n * (weight_soft * D_n + weight_hard * C_n)
 *   loss = sum_n token_loss_n / N, N = denominator, or the number of tokens that count; 0 where N is 0
 *   soft_loss = sum_n D_n / N, hard_loss = sum_n C_n / N
 *   dhidden, dweight, dbias = dloss * grad_scale * the gradients of loss; the teacher gets none
 * The softcap comes before the temperature, as with cross_entropy.h's softcap_first: the cross entropy has none.
 * With by_temperature_squared D_n is multiplied by temperature^2 in token_loss and the gradients. The tokens are worked
 * off in chunks that fit the workspace: a product for each head, divergence with the student's gradient in place of its
 * logits, and linear's two products of that. With has_ignore_index a token whose label is ignore_index counts for
 * nothing: its losses and dhidden are 0, whatever hidden and teacher_hidden hold where the host reads labels, because it
 * is then skipped. A label out of range counts as little where the call has `error`, or a device found it.
 *
 * A teacher with fewer classes (V' < V) gives the others a probability of 0 (for cosine an element of 0), which
 * reverse_kl, whose loss were Inf, refuses. One with more is refused without truncate_teacher; with it the teacher has
 * its first V classes, and its probabilities are those of a softmax over them.
 *
 * Shapes: hidden, dhidden [..., H] of BT rows; weight, dweight [V, H]; bias, dbias [V]; teacher_hidden [..., H'] with
 *   hidden's leading dimensions; teacher_weight [V', H']; teacher_bias [V']; labels as hidden without H, or [BT], as are
 *   token_scale and token_loss; all others [1].
 * dtypes: hidden f32, bf16, f16; weight, dhidden and the teacher's tensors as hidden; biases f32 or as hidden; dweight,
 *   dbias f32 or as weight (summed in f32 and rounded once either way); labels i32 or i64; error i32; all others f32.
 *   u and w are held in hidden's dtype, as linear would, or with logits_in_f32 in f32; their gradients in hidden's. What
 *   a softcap makes of them is not rounded.
 * Strides: hidden, dhidden, and teacher_hidden beside them: last 1, leading ones collapse to one row pitch each (tigon.h);
 *   weights and dweight any row pitch; all others contiguous.
 * There is no backward: the gradients come with the loss.
 * Workspace: any size from the minimum up, as fused_linear_cross_entropy.h says it, but with two rows of logits for its
 *   one, and besides 4 bytes a token each for soft_loss, hard_loss and an absent token_loss, and with a 16-bit dweight 12,
 *   16 with weight_hard. So 1 MiB is enough for 8192 tokens, V = 128256, H = 8192 with logits of 16 bits, 1.25 MiB in f32.
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
  tigon_tensor labels;         /* in  [...]; absent, without weight_hard alone: all tokens count */
  tigon_tensor token_scale;    /* in  [BT] f32; absent: all 1 */
  tigon_tensor denominator;    /* in  [1] f32; absent: the number of tokens that count */
  tigon_tensor dloss;          /* in  [1] f32, for the gradients; absent: 1 */
  tigon_tensor loss;           /* out [1] f32 */
  tigon_tensor soft_loss;      /* out [1] f32; may be absent, as all that follow */
  tigon_tensor hard_loss;      /* out [1] f32 */
  tigon_tensor token_loss;     /* out [BT] f32 */
  tigon_tensor error;          /* out [1] i32, set to 1 by a label out of range and else left alone */
  tigon_tensor dhidden;        /* out [..., H] */
  tigon_tensor dweight;        /* out [V, H] */
  tigon_tensor dbias;          /* out [V] */
  tigon_divergence_kind kind;
  double beta;        /* 0..1, of jsd */
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
