/* fused_moe: the experts of a mixture. Each token goes through K of E gated MLPs, which a router has chosen.
 * Sources: Shazeer et al. 2017, arXiv:1701.06538; Gale et al. 2022, arXiv:2211.15841.
 *
 * A slot (t, k) is one choice of token t: its expert e = idx[t, k], and its weight w[t, k].
 * Forward, for each slot:
 *   pre = x[t] gate_up[e]^T + gate_up_bias[e]      [2I]: its first half is a, the gate, and its second half is b, up;
 *                                                  interleaved: a has its even columns and b its odd columns
 *   u = gate_mult * a      c = down_mult * act(u) * (b + up_offset)
 *   with clamp > 0 (gpt-oss): a is replaced by min(a, clamp), b by min(max(b, -clamp), clamp)
 *   act: SILU u * sigma(u), sigma(u) = 1 / (1 + exp(-u)); GELU_TANH as in geglu.h
 *   z = w * (c down[e]^T + down_bias[e])           weight_before_down: z = (w * c) down[e]^T + down_bias[e]
 *   y[t] = sum over k of z
 * Backward, for each slot:
 *   d = dy[t] down[e]                              dc = w * d
 *   dw = sum of d * c + sum of dy[t] * down_bias[e]; weight_before_down: without the second sum
 *   da = dc * down_mult * (b + up_offset) * gate_mult * act'(u)
 *   db = dc * down_mult * act(u)                   a clamped element has gradient 0; dpre has da and db as pre has a and b
 *   dx[t] = sum over k of dpre gate_up[e]
 * and for each expert, over its slots:
 *   dgate_up = sum of dpre^T x[t]                  dgate_up_bias = sum of dpre
 *   ddown = sum of dy[t]^T (w * c)                 ddown_bias = sum of w * dy[t]; weight_before_down: sum of dy[t]
 *   gpt-oss: gate_mult 1.702, down_mult 1 / 1.702, up_offset 1, clamp 7, interleaved
 * An expert outside [0, E) is no expert: the slot adds nothing to any result, and its dw is 0. An expert without a slot has
 *   gradients of 0. A token may choose an expert more than once.
 *
 * Order: slots are sorted by expert. Slots of one expert stay in the order of t, then k. Slots of no expert come last. The order
 *   depends only on idx, so backward makes it again. pre has its rows in this order, and zeros for slots of no expert.
 * Rounding: products are summed in f32. pre, dpre and w * c (or c, if the weight comes later) are rounded to the dtype, whether
 *   they are stored or not. z and a slot's share of dx may be rounded too. y and dx are sums in f32 in a fixed order, rounded
 *   once. So a stored pre changes no bit of the gradients.
 * A NaN of a token stays in its rows of y, dx, dw and pre, and in the gradients of its experts.
 *
 * Shapes: x, y, dy, dx [..., H]; idx, w, dw [..., K]; gate_up, dgate_up [E, 2I, H]; gate_up_bias, dgate_up_bias [E, 2I];
 *   down, ddown [E, H, I]; down_bias, ddown_bias [E, H]; pre [..., K, 2I]. Any of them may be 0, and K > E is legal.
 * dtypes: x f32, bf16 or f16; gate_up, down, y, dy, dx, pre as x; each bias, w, dw and each gradient of a weight or bias f32 or as
 *   x; idx i32 or i64.
 * Strides: the last one is 1, those of tokens are free (three at most: tigon.h). gate_up, down and their gradients have any strides
 *   of which the last or the one before it is 1. So a weight stored as [E, H, 2I] or [E, I, H] is passed as a view with its last two
 *   dimensions exchanged. All others are contiguous.
 * Workspace: more than the minimum is faster, up to the recommended size. No bit depends on it.
 * In place: nothing.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_FUSED_MOE_H
#define TIGON_OP_FUSED_MOE_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tigon_moe_act {
  TIGON_MOE_SILU = 0,
  TIGON_MOE_GELU_TANH = 1,
} tigon_moe_act;

typedef struct tigon_fused_moe_fwd_args {
  tigon_tensor x;            /* in  [..., H] */
  tigon_tensor idx;          /* in  [..., K] i32 or i64, the experts of each token */
  tigon_tensor w;            /* in  [..., K], their weights */
  tigon_tensor gate_up;      /* in  [E, 2I, H] */
  tigon_tensor gate_up_bias; /* in  [E, 2I]; absent: none */
  tigon_tensor down;         /* in  [E, H, I] */
  tigon_tensor down_bias;    /* in  [E, H]; absent: none */
  tigon_tensor y;            /* out [..., H] */
  tigon_tensor pre;          /* out [..., K, 2I], for backward; absent: not stored */
  int act;                   /* tigon_moe_act */
  int interleaved;           /* 1: rows of gate_up belong to a and b in turns */
  int weight_before_down;    /* 1: w multiplies c, 0: w multiplies an expert's result */
  double gate_mult;          /* 0 means 1 */
  double down_mult;          /* 0 means 1 */
  double clamp;              /* 0: none; else > 0 */
  double up_offset;
  void *workspace; /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_fused_moe_fwd_args;

TIGON_API tigon_status tigon_fused_moe_fwd(tigon_context *context, const tigon_fused_moe_fwd_args *args);
/* Bytes of the smallest workspace that works and of the one recommended; either pointer may be NULL. */
TIGON_API tigon_status tigon_fused_moe_fwd_workspace(tigon_context *context, const tigon_fused_moe_fwd_args *args,
                                                     size_t *minimum, size_t *recommended);

typedef struct tigon_fused_moe_bwd_args {
  tigon_tensor x;             /* in  [..., H], forward's, and so are all inputs but dy */
  tigon_tensor idx;           /* in  [..., K] */
  tigon_tensor w;             /* in  [..., K] */
  tigon_tensor gate_up;       /* in  [E, 2I, H] */
  tigon_tensor gate_up_bias;  /* in  [E, 2I]; absent: none. Read only without pre */
  tigon_tensor down;          /* in  [E, H, I] */
  tigon_tensor down_bias;     /* in  [E, H]; absent: none. Read only for dw */
  tigon_tensor pre;           /* in  [..., K, 2I]; absent: made again */
  tigon_tensor dy;            /* in  [..., H] */
  tigon_tensor dx;            /* out [..., H]; absent: not computed, as each output */
  tigon_tensor dw;            /* out [..., K] */
  tigon_tensor dgate_up;      /* out [E, 2I, H] */
  tigon_tensor dgate_up_bias; /* out [E, 2I] */
  tigon_tensor ddown;         /* out [E, H, I] */
  tigon_tensor ddown_bias;    /* out [E, H] */
  int accumulate_dgate_up;    /* 1: dgate_up, dgate_up_bias, ddown and ddown_bias +=, 0: = */
  int act;                    /* this and what follows: forward's */
  int interleaved;
  int weight_before_down;
  double gate_mult;
  double down_mult;
  double clamp;
  double up_offset;
  void *workspace; /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_fused_moe_bwd_args;

TIGON_API tigon_status tigon_fused_moe_bwd(tigon_context *context, const tigon_fused_moe_bwd_args *args);
TIGON_API tigon_status tigon_fused_moe_bwd_workspace(tigon_context *context, const tigon_fused_moe_bwd_args *args,
                                                     size_t *minimum, size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
