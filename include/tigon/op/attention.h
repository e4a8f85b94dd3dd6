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
 * Shapes: q, o, do, dq [B, T, Hq, D], D >= 1; k, v, dk, dv [B, S, Hk, D], Hq a multiple of Hk; lse [B, Hq, T].
 * dtypes: f32, bf16, f16, all the same, arithmetic in f32; lse f32.
 * Strides: the last one is 1, the others are free, so packed qkv and [B, H, T, D] memory are views; lse contiguous.
 * In place: none. The outputs of backward may be views of one buffer that do not overlap.
 * Errors: INVALID, ALIAS, UNSUPPORTED, and WORKSPACE in backward. */
#ifndef TIGON_OP_ATTENTION_H
#define TIGON_OP_ATTENTION_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_attention_fwd_args {
  tigon_tensor q;   /* in  [B, T, Hq, D] */
  tigon_tensor k;   /* in  [B, S, Hk, D] */
  tigon_tensor v;   /* in  [B, S, Hk, D] */
  tigon_tensor o;   /* out [B, T, Hq, D] */
  tigon_tensor lse; /* out [B, Hq, T] f32, for backward; absent: not stored */
  double scale;     /* 0 means 1 / sqrt(D) */
  int causal;       /* 1: causal */
  int64_t window;   /* keys a query sees to its left, itself included; 0: all */
  uint64_t reserved[4];
} tigon_attention_fwd_args;

TIGON_API tigon_status tigon_attention_fwd(tigon_context *context, const tigon_attention_fwd_args *args);

typedef struct tigon_attention_bwd_args {
  tigon_tensor d_o; /* in  [B, T, Hq, D], the gradient of o */
  tigon_tensor q;   /* in  forward's */
  tigon_tensor k;   /* in  forward's */
  tigon_tensor v;   /* in  forward's */
  tigon_tensor o;   /* in  forward's */
  tigon_tensor lse; /* in  forward's */
  tigon_tensor dq;  /* out [B, T, Hq, D] */
  tigon_tensor dk;  /* out [B, S, Hk, D] */
  tigon_tensor dv;  /* out [B, S, Hk, D] */
  double scale;     /* 0 means 1 / sqrt(D) */
  int causal;
  int64_t window;
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
