/* attention: scaled dot product with grouped heads, by online softmax in O(T * D) memory (Dao 2023, arXiv:2307.08691).
 *
 * Forward, for query t of head h, over the keys j that it sees (head h / (Hq / Hk) of k and v):
 *   z_j = scale * q . k_j        lse = log sum exp(z_j)        o = sum_j exp(z_j - lse) * v_j
 *   causal: j <= t + (S - T)        window w > 0: also j > t + (S - T) - w, and without causal j < t + (S - T) + w
 *   a query that sees no key, or whose every z is -inf, gives o = 0 and lse = -inf
 * Backward, with p_j = exp(z_j - lse) and delta = do . o:
 *   dv_j = sum_t p_j * do        dz_j = p_j * (do . v_j - delta)        dq = scale * sum_j dz_j * k_j
 *   dk_j = scale * sum_t dz_j * q
 *
 * Options:
 *   softcap c > 0 (Gemma 2): z_j = c * tanh(scale * q . k_j / c); dz_j has the factor 1 - tanh^2
 *   sinks (gpt-oss): head h has a logit s_h without a value, neither scaled nor capped: lse = log(exp(s_h) + sum exp(z_j))
 *     dsinks_h = -sum over batches and queries of exp(s_h - lse) * delta
 *     s_h = -inf changes nothing; s_h = +inf gives o = 0 and lse = +inf; a query that sees no key has lse = s_h
 *   dilation n > 1: a query sees only those of these keys with t + (S - T) - j a multiple of n. A window reaches n times as
 *     far. Without causal, a window of r + 1 is a neighbourhood of 2r + 1 keys (NATTEN, arXiv:2204.07143, but clipped at the
 *     ends).
 *   cu_seqlens_q, cu_seqlens_k (packed sequences, B = 1): segment i has queries cu_seqlens_q[i] to cu_seqlens_q[i + 1] - 1
 *     and keys cu_seqlens_k[i] to cu_seqlens_k[i + 1] - 1. They see only each other, as in a call of their own.
 *     Queries before the first and behind the last segment see no key, and no query sees such keys.
 *     If values decrease, or lie outside of 0 .. T or S, a host device refuses the call. Another device stays within the
 *     tensors, and o, lse and gradients are then unspecified.
 *
 * Grades, in bf16 and f16: by default each p_j may be rounded to the dtype before its product with v or do, as FlashAttention
 *   and cuDNN do. In backward each dz_j / scale may be rounded before its product with k or q. With exact = 1 they have the
 *   accuracy of f32. lse always has it, and so has a call in f32. docs/op/attention.md has the bounds. `tigon list` has the
 *   grade that a device computes in by default.
 *
 * Shapes: q, o, do, dq [B, T, Hq, D], D >= 1; k, v, dk, dv [B, S, Hk, D], Hq a multiple of Hk; lse [B, Hq, T];
 *   sinks, dsinks [Hq]; cu_seqlens_q, cu_seqlens_k [N + 1].
 * dtypes: f32, bf16, f16, all the same, arithmetic in f32; lse f32; sinks and dsinks f32 or as q;
 *   cu_seqlens_q and cu_seqlens_k i32 or i64.
 * Strides: the last one is 1, the others are free. So packed qkv and [B, H, T, D] memory are views. Vectors and lse are
 *   contiguous.
 * In place: none. The outputs of backward may be views of one buffer that do not overlap.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_ATTENTION_H
#define TIGON_OP_ATTENTION_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_attention_fwd_args {
  tigon_tensor q;            /* in  [B, T, Hq, D] */
  tigon_tensor k;            /* in  [B, S, Hk, D] */
  tigon_tensor v;            /* in  [B, S, Hk, D] */
  tigon_tensor o;            /* out [B, T, Hq, D] */
  tigon_tensor lse;          /* out [B, Hq, T] f32, for backward; absent: not stored */
  tigon_tensor sinks;        /* in  [Hq]; absent: none */
  tigon_tensor cu_seqlens_q; /* in  [N + 1], ascending, 0 to T; absent: all rows are one segment */
  tigon_tensor cu_seqlens_k; /* in  [N + 1], ascending, 0 to S; with cu_seqlens_q */
  double scale;              /* 0 means 1 / sqrt(D) */
  int causal;                /* 1: causal */
  int exact;                 /* 1: weights are not rounded to the dtype */
  int64_t window;            /* keys a query sees to its left, itself included; 0: all */
  double softcap;            /* 0: none */
  int64_t dilation;          /* 0 and 1: none */
  uint64_t reserved[4];
} tigon_attention_fwd_args;

TIGON_API tigon_status tigon_attention_fwd(tigon_context *context, const tigon_attention_fwd_args *args);

typedef struct tigon_attention_bwd_args {
  tigon_tensor d_o;          /* in  [B, T, Hq, D], the gradient of o */
  tigon_tensor q;            /* in  forward's */
  tigon_tensor k;            /* in  forward's */
  tigon_tensor v;            /* in  forward's */
  tigon_tensor o;            /* in  forward's */
  tigon_tensor lse;          /* in  forward's */
  tigon_tensor dq;           /* out [B, T, Hq, D] */
  tigon_tensor dk;           /* out [B, S, Hk, D] */
  tigon_tensor dv;           /* out [B, S, Hk, D] */
  tigon_tensor sinks;        /* in  [Hq], forward's, read only for dsinks */
  tigon_tensor cu_seqlens_q; /* in  forward's */
  tigon_tensor cu_seqlens_k; /* in  forward's */
  tigon_tensor dsinks;       /* out [Hq]; absent: not computed */
  double scale;              /* 0 means 1 / sqrt(D) */
  int causal;
  int exact; /* need not be forward's */
  int64_t window;
  double softcap;
  int64_t dilation;
  void *workspace; /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_attention_bwd_args;

TIGON_API tigon_status tigon_attention_bwd(tigon_context *context, const tigon_attention_bwd_args *args);
TIGON_API tigon_status tigon_attention_bwd_workspace(tigon_context *context, const tigon_attention_bwd_args *args,
                                                     size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
