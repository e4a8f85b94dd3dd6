/* fused_linear_topk_divergence: distillation through the student's head from a teacher's k entries per token. It never stores
 * all logits [BT, V], and makes no product with a teacher's head.
 *
 *   u = hidden W^T + bias                                                                           (linear.h)
 *   x = softcap * tanh(u * logit_scale / softcap), without a softcap u * logit_scale
 *   D_n = the divergence of token n's entries from softmax(x_n / temperature)                       (topk_divergence.h)
 *   C_n, token_loss, loss, soft_loss, hard_loss and the gradients are those of fused_linear_divergence.h
 * kind, target_is, beta, temperature, tail and least_tail are topk_divergence's, so cosine is refused.
 * target_ids out of [0, V) are refused where the host can read them, even in tokens that do not count. With `error`, and on
 * other devices, such an id raises `error`, and is no entry.
 * fused_linear_divergence.h says what has_ignore_index and labels out of range mean.
 *
 * Shapes: hidden, dhidden [..., H] of BT rows; weight, dweight [V, H]; bias, dbias [V]; target, target_ids [..., k] with
 *   hidden's leading dimensions, any k below 2^31; labels as hidden without H, or [BT], as are token_scale and token_loss;
 *   all others [1].
 * dtypes: hidden f32, bf16, f16; weight, dhidden as hidden; target as hidden or f32; target_ids i32 or i64; bias f32 or as
 *   hidden; dweight, dbias f32 or as weight (summed in f32 and rounded once either way); labels i32 or i64; error i32; all
 *   others f32. u is stored in hidden's dtype, as linear's, or with logits_in_f32 in f32. Its gradient is stored in hidden's
 *   dtype.
 * Strides: hidden, dhidden, target: last 1, leading ones collapse to one row pitch each (tigon.h); weight and dweight any
 *   row pitch; all others contiguous.
 * There is no backward: the gradients come with the loss.
 * Workspace: any size from the minimum up. The minimum is that of fused_linear_cross_entropy.h, and 4 bytes more per token for
 *   each of soft_loss, hard_loss and an absent token_loss. With a 16-bit dweight it has 12 bytes more per token, or 16 with
 *   weight_hard.
 * In place: dhidden may be hidden.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_FUSED_LINEAR_TOPK_DIVERGENCE_H
#define TIGON_OP_FUSED_LINEAR_TOPK_DIVERGENCE_H

#include <tigon/op/topk_divergence.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_fused_linear_topk_divergence_fwd_args {
  tigon_tensor hidden;        /* in  [..., H] */
  tigon_tensor weight;        /* in  [V, H] */
  tigon_tensor bias;          /* in  [V]; absent: none */
  tigon_tensor target;        /* in  [..., k] */
  tigon_tensor target_ids;    /* in  [..., k] */
  tigon_tensor labels;        /* in  [...]; absent, only without weight_hard: all tokens count */
  tigon_tensor token_scale;   /* in  [BT] f32; absent: all 1 */
  tigon_tensor denominator;   /* in  [1] f32; absent: the number of tokens that count */
  tigon_tensor dloss;         /* in  [1] f32, for the gradients; absent: 1 */
  tigon_tensor loss;          /* out [1] f32 */
  tigon_tensor soft_loss;     /* out [1] f32; may be absent, as all that follow */
  tigon_tensor hard_loss;     /* out [1] f32 */
  tigon_tensor token_loss;    /* out [BT] f32 */
  tigon_tensor error;         /* out [1] i32, set to 1 by a label or an id out of range and else not written */
  tigon_tensor dhidden;       /* out [..., H] */
  tigon_tensor dweight;       /* out [V, H] */
  tigon_tensor dbias;         /* out [V] */
  tigon_divergence_kind kind; /* any except cosine */
  tigon_distribution target_is;
  double beta;          /* 0..1, for jsd */
  double temperature;   /* 0 means 1; else > 0; divides x, and target where it is logits */
  double softcap;       /* 0: none; else > 0 */
  double logit_scale;   /* 0 means 1; else > 0 */
  int tail;             /* 1: kl has the tail; the other kinds always have it */
  double least_tail;    /* 0..1 */
  double weight_soft;   /* 0 means 1; else > 0 */
  double weight_hard;   /* 0: no cross entropy; else > 0 */
  int has_ignore_index; /* 1: ignore_index counts */
  int64_t ignore_index;
  int by_temperature_squared;
  int logits_in_f32;      /* 1: logits are not rounded to hidden's dtype */
  int accumulate_dweight; /* 1: dweight += and dbias += , 0: = */
  double grad_scale;      /* 0 means 1 */
  void *workspace;        /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_fused_linear_topk_divergence_fwd_args;

TIGON_API tigon_status tigon_fused_linear_topk_divergence_fwd(tigon_context *context,
                                                              const tigon_fused_linear_topk_divergence_fwd_args *args);
/* Bytes of the smallest workspace that works and of the one recommended; either pointer may be NULL. */
TIGON_API tigon_status tigon_fused_linear_topk_divergence_fwd_workspace(
    tigon_context *context, const tigon_fused_linear_topk_divergence_fwd_args *args, size_t *minimum,
    size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
