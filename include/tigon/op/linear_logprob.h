/* linear_logprob: the log-probability of each token's label under a language-model head, and the entropy of the head's
 * distribution, both with gradients. Policy losses need them. It never stores all logits [BT, V].
 *
 *   x = hidden W^T + bias      (linear.h)
 *   z follows from x by softcap and temperature, and lse, entropy and argmax from z      (cross_entropy.h)
 *   logprob_n = z_t - lse for the token's label t
 *   dx[n, v] = dlogprob_n * d logprob_n / d x[n, v] + dentropy_n * d entropy_n / d x[n, v]
 *   dhidden = dx W, dweight = dx^T hidden, dbias = sum_n dx_n      (linear.h)
 *   unit_n = d logprob_n / d hidden_n
 * A token whose label is ignore_index does not count: its logprob, entropy, dhidden and unit are 0 and its argmax is -1. Where
 * the host reads labels its lse is 0 too. Elsewhere its lse is stored. cross_entropy.h says what a label out of range means.
 *
 * Forward makes the logits chunk by chunk, which is one product of 2 * BT * V * H operations. Backward makes them again and
 * has two more products. Two options save the repeated product:
 *   cache [K, V]: forward leaves the logits of the first K tokens that are not skipped, and backward reads these. Where
 *     the host reads labels, tokens that do not count are skipped. No bit of a result depends on K where linear's grades
 *     include batch.
 *   unit [..., H]: for a head that is not trained. Forward's second product makes it. The gradient of hidden is then
 *     dlogprob_n * unit_n, without a backward call.
 *
 * A vocabulary may be cut into shards, one for each of R ranks. With `vocab`, weight, bias and their gradients belong to classes
 * [vocab_begin, vocab_begin + V) of `vocab`. Labels are classes of all shards. A row then takes three steps:
 *   - fwd of each shard, with stats [..., 5]: the result of vocab_parallel_cross_entropy's `stats` with_entropy for the logits;
 *   - an all-gather of stats, and vocab_parallel_cross_entropy's `merge`, which gives lse, entropy, and logprob as -token_loss;
 *   - bwd of each shard, with merge's lse and entropy: the shard's dweight and dbias, and its part of dhidden.
 * dhidden is the sum of its parts over all shards. A part is rounded to its dtype before the sum. Forward's other outputs are
 * absent then. A skipped row has m = -Inf and 0 for its other stats.
 *
 * Shapes: hidden, dhidden, unit [..., H] of BT rows; stats [..., 5]; weight, dweight [V, H]; bias, dbias [V]; cache [K, V]; labels as
 *   hidden without H, or [BT]; so is each other tensor that has one element per token; correct, error [1].
 * dtypes: hidden f32, bf16, f16; weight, dhidden and unit as hidden; cache as hidden, with logits_in_f32 f32; bias f32 or
 *   as hidden; dweight, dbias f32 or as weight (summed in f32 and rounded once either way); labels i32 or i64; argmax,
 *   correct i64; error i32; all others f32. Logits are stored in hidden's dtype, as linear's, or with logits_in_f32 in
 *   f32. dx is rounded to hidden's dtype.
 * Strides: hidden, dhidden, unit: last 1, leading ones collapse to one row pitch (tigon.h); weight, dweight, cache any row
 *   pitch; all others contiguous.
 * Workspace: any size from the minimum up, which is that of fused_linear_cross_entropy.h. 1 MiB is enough for 8192 tokens,
 *   V = 128256, H = 8192. Forward and backward may have different workspaces.
 * In place: dhidden may be hidden.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_LINEAR_LOGPROB_H
#define TIGON_OP_LINEAR_LOGPROB_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tigon_linear_logprob_fwd_args {
  tigon_tensor hidden;  /* in  [..., H] */
  tigon_tensor weight;  /* in  [V, H] */
  tigon_tensor bias;    /* in  [V]; absent: none */
  tigon_tensor labels;  /* in  [...] */
  tigon_tensor logprob; /* out [BT] f32; absent with vocab, else required */
  tigon_tensor stats;   /* out [..., 5] f32; required with vocab, else absent */
  tigon_tensor lse;     /* out [BT] f32, for backward; may be absent */
  tigon_tensor entropy; /* out [BT] f32; may be absent */
  tigon_tensor argmax;  /* out [BT] i64; may be absent */
  tigon_tensor correct; /* out [1] i64, tokens that count and whose argmax is the label; may be absent */
  tigon_tensor error;   /* out [1] i32, set to 1 by a label out of range and else not written; may be absent */
  tigon_tensor cache;   /* out [K, V], for backward; may be absent. Rows beyond the tokens are not written */
  tigon_tensor unit;    /* out [..., H]; absent: not computed */
  int has_ignore_index; /* 1: ignore_index counts */
  int64_t ignore_index;
  double softcap;      /* 0: none; else > 0 */
  double temperature;  /* 0 means 1; else > 0 */
  int softcap_first;   /* 1: the softcap comes before the temperature */
  int logits_in_f32;   /* 1: logits are not rounded to hidden's dtype */
  int64_t vocab;       /* classes of all shards; forward then gives only stats; 0: weight has all classes */
  int64_t vocab_begin; /* the shard's first class */
  void *workspace;     /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_linear_logprob_fwd_args;

TIGON_API tigon_status tigon_linear_logprob_fwd(tigon_context *context, const tigon_linear_logprob_fwd_args *args);
/* Bytes of the smallest workspace that works and of the one recommended; either pointer may be NULL. */
TIGON_API tigon_status tigon_linear_logprob_fwd_workspace(tigon_context *context,
                                                          const tigon_linear_logprob_fwd_args *args, size_t *minimum,
                                                          size_t *recommended);

typedef struct tigon_linear_logprob_bwd_args {
  tigon_tensor hidden;    /* in  [..., H], forward's, and so are all inputs up to the cache */
  tigon_tensor weight;    /* in  [V, H] */
  tigon_tensor bias;      /* in  [V]; absent: none */
  tigon_tensor labels;    /* in  [...] */
  tigon_tensor lse;       /* in  [BT] f32 */
  tigon_tensor entropy;   /* in  [BT] f32; may be absent without dentropy */
  tigon_tensor cache;     /* in  [K, V]; may be absent */
  tigon_tensor dlogprob;  /* in  [BT] f32 */
  tigon_tensor dentropy;  /* in  [BT] f32; absent: 0 */
  tigon_tensor dhidden;   /* out [..., H]; absent: not computed */
  tigon_tensor dweight;   /* out [V, H]; absent: not computed */
  tigon_tensor dbias;     /* out [V]; absent: not computed */
  tigon_tensor error;     /* out [1] i32; may be absent */
  int accumulate_dweight; /* 1: dweight += and dbias += , 0: = */
  int has_ignore_index;   /* this and what follows: forward's */
  int64_t ignore_index;
  double softcap;
  double temperature;
  int softcap_first;
  int logits_in_f32;
  int64_t vocab;
  int64_t vocab_begin;
  void *workspace; /* 64-byte aligned */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_linear_logprob_bwd_args;

TIGON_API tigon_status tigon_linear_logprob_bwd(tigon_context *context, const tigon_linear_logprob_bwd_args *args);
TIGON_API tigon_status tigon_linear_logprob_bwd_workspace(tigon_context *context,
                                                          const tigon_linear_logprob_bwd_args *args, size_t *minimum,
                                                          size_t *recommended);

#ifdef __cplusplus
}
#endif

#endif
