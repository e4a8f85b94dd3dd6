/* vocab_parallel_cross_entropy: cross_entropy of logits whose vocabulary is cut into shards, one for each of R ranks.
 *
 * Rank k has the logits x of classes [vocab_begin, vocab_begin + V_k) of V. z follows from x by softcap and temperature, as in
 * cross_entropy.h. A row of label t takes three steps, with the caller's one collective between the first two:
 *   stats, of a shard:    m = max_v z_v     s = sum_v exp(z_v - m)     w = sum_v (z_v - m) * exp(z_v - m), 0 * -Inf = 0
 *                         u = sum_v z_v     y = z_t where the shard has class t, else 0
 *   an all-gather of stats [rows, 5], whose columns are m, s, w, u and y, to [R, rows, 5]
 *   merge, of all shards: M = max_k m_k     S = sum_k s_k * exp(m_k - M)     W = sum_k (w_k + s_k * (m_k - M)) * exp(m_k - M)
 *                         lse = M + log S   entropy = log S - W / S          z_loss = lse_square_scale * lse^2
 *                         loss_n = (1 - e') * (lse - sum_k y_k) + e' * (lse - mean) + z_loss
 *   bwd, of a shard:      dlogits = dloss * grad_scale * d loss / d x + dentropy_n * grad_scale * d entropy_n / d x
 *                         d loss_n / d z_v = (1 + 2 * lse_square_scale * lse) * p_v - (1 - e') * [v is t] - e' / classes
 *                         d entropy_n / d z_v = -p_v * (z_v - lse + entropy_n), with p_v = exp(z_v - lse)
 * The smoothing e is spread over classes = V, and mean = sum_k u_k / V. With options.own_partition it is spread over the own shard
 * only: classes = V_rank and mean = u_rank / V_rank. The losses of ranks then differ. options.formula decides e':
 *   PYTORCH   e' = e, cross_entropy's
 *   MEGATRON  e' = e * classes / (classes - 1), or 0 where classes is below 2. Megatron-LM's own loss also has own_partition.
 * loss, its mean and the denominator are cross_entropy's without weights. One rank is legal: its shard is the vocabulary.
 *
 * A label of another shard's class is legal. A row whose label is ignore_index does not count: its losses, entropy, dlogits, w, u
 * and y are 0. Its m, s and lse are still stored.
 * A label out of [0, V) that is not ignore_index: stats treats its row as ignored. With `error` merge and bwd set it and treat the
 * row as ignored. Without `error` they do as cross_entropy.h says.
 * A shard without classes, or with only -Inf, has m = -Inf and s = w = 0, and adds nothing. A shard with Inf has m = Inf and
 * s = w = 0, and lse is then Inf. A shard with NaN has NaN for m, s and w, and so has its row for what follows from them. A row
 * with only -Inf has lse -Inf, and NaN for its losses, entropy and dlogits. The entropy of a row with Inf is NaN too.
 *
 * Shapes: logits, dlogits [..., V_k], rows = product of the leading dimensions; labels, lse, entropy, dentropy and, with reduction
 *   none, dloss of bwd have logits' shape without V_k, or are flat, [rows]; stats of `stats` [..., 5]. merge: stats [R, rows, 5],
 *   labels, token_loss, lse, z_loss, entropy [rows]. denominator, loss, error [1]; dloss [1] with mean and sum.
 * dtypes: logits f32, bf16, f16; dlogits as logits; labels i32 or i64; error i32; all others f32.
 * Strides: logits and dlogits: last one 1, leading ones free (three at most: tigon.h); all others contiguous.
 * In place: dlogits may be logits.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE.
 * Sources: Shoeybi et al., Megatron-LM, arXiv:1909.08053, section 3; Szegedy et al., arXiv:1512.00567, section 7. */
#ifndef TIGON_OP_VOCAB_PARALLEL_CROSS_ENTROPY_H
#define TIGON_OP_VOCAB_PARALLEL_CROSS_ENTROPY_H

#include <tigon/op/cross_entropy.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Columns of stats. */
enum { TIGON_VOCAB_STATS = 5 };

typedef enum tigon_smoothing_formula {
  TIGON_SMOOTHING_PYTORCH = 0,
  TIGON_SMOOTHING_MEGATRON = 1,
} tigon_smoothing_formula;

typedef struct tigon_vocab_parallel_cross_entropy_stats_args {
  tigon_tensor logits;  /* in  [..., V_k] */
  tigon_tensor labels;  /* in  [...] */
  tigon_tensor stats;   /* out [..., 5] f32 */
  int64_t vocab;        /* V: classes of all shards */
  int64_t vocab_begin;  /* the shard's first class */
  int has_ignore_index; /* 1: ignore_index counts */
  int64_t ignore_index;
  double softcap;     /* 0: none; else > 0 */
  double temperature; /* 0 means 1; else > 0 */
  int softcap_first;  /* 1: the softcap comes before the temperature */
  int with_entropy;   /* 1: w is made, which an entropy needs; 0: it is 0 */
  int with_smoothing; /* 1: u is made, which a smoothing needs; 0: it is 0 */
  uint64_t reserved[4];
} tigon_vocab_parallel_cross_entropy_stats_args;

TIGON_API tigon_status tigon_vocab_parallel_cross_entropy_stats(
    tigon_context *context, const tigon_vocab_parallel_cross_entropy_stats_args *args);

/* The options of merge and bwd. */
typedef struct tigon_vocab_parallel_cross_entropy_options {
  tigon_tensor denominator; /* in [1] f32, of mean; absent: the rows that count */
  int64_t vocab;            /* V */
  int has_ignore_index;     /* 1: ignore_index counts */
  int64_t ignore_index;
  double label_smoothing; /* e, 0..1 */
  tigon_smoothing_formula formula;
  int own_partition;       /* 1: e is spread over the own shard only */
  double lse_square_scale; /* >= 0 */
  tigon_reduction reduction;
  uint64_t reserved[4];
} tigon_vocab_parallel_cross_entropy_options;

/* Each may be absent, except those that the reduction requires. */
typedef struct tigon_vocab_parallel_cross_entropy_outputs {
  tigon_tensor loss;       /* out [1] f32; absent with reduction none, else required */
  tigon_tensor token_loss; /* out [rows] f32, before the division of mean; required with reduction none */
  tigon_tensor lse;        /* out [rows] f32, for bwd */
  tigon_tensor z_loss;     /* out [rows] f32 */
  tigon_tensor entropy;    /* out [rows] f32, for stats with_entropy */
  tigon_tensor error;      /* out [1] i32, set to 1 by a label out of range and else not written */
} tigon_vocab_parallel_cross_entropy_outputs;

typedef struct tigon_vocab_parallel_cross_entropy_merge_args {
  tigon_tensor stats;  /* in  [R, rows, 5] f32 */
  tigon_tensor labels; /* in  [rows] */
  tigon_vocab_parallel_cross_entropy_options options;
  tigon_vocab_parallel_cross_entropy_outputs out;
  int64_t rank;         /* for own_partition: the own shard, < R */
  int64_t rank_classes; /* for own_partition: V_rank */
  void *workspace;      /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_vocab_parallel_cross_entropy_merge_args;

TIGON_API tigon_status tigon_vocab_parallel_cross_entropy_merge(
    tigon_context *context, const tigon_vocab_parallel_cross_entropy_merge_args *args);
TIGON_API tigon_status tigon_vocab_parallel_cross_entropy_merge_workspace(
    tigon_context *context, const tigon_vocab_parallel_cross_entropy_merge_args *args, size_t *bytes);

typedef struct tigon_vocab_parallel_cross_entropy_bwd_args {
  tigon_tensor logits; /* in  [..., V_k], as in stats */
  tigon_tensor labels; /* in  [...] */
  tigon_tensor lse;    /* in  [rows] f32, merge's */
  tigon_vocab_parallel_cross_entropy_options options;
  tigon_tensor entropy;  /* in  [rows] f32, merge's; may be absent without dentropy */
  tigon_tensor dloss;    /* in  [1] or [rows] f32; absent: 1 */
  tigon_tensor dentropy; /* in  [rows] f32; absent: 0 */
  tigon_tensor dlogits;  /* out [..., V_k] */
  tigon_tensor error;    /* out [1] i32; may be absent */
  int64_t vocab_begin;   /* this and what follows except grad_scale: as in stats */
  double softcap;
  double temperature;
  int softcap_first;
  double grad_scale; /* 0 means 1 */
  void *workspace;   /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_vocab_parallel_cross_entropy_bwd_args;

TIGON_API tigon_status tigon_vocab_parallel_cross_entropy_bwd(tigon_context *context,
                                                              const tigon_vocab_parallel_cross_entropy_bwd_args *args);
TIGON_API tigon_status tigon_vocab_parallel_cross_entropy_bwd_workspace(
    tigon_context *context, const tigon_vocab_parallel_cross_entropy_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
