/* topk_divergence: divergence from a teacher's k entries per row, from a student's logits to the loss, and to the student's
 * gradient in the same call on request.
 *
 * For row n, q is the softmax of input / temperature over the V columns. Entry j says that the teacher gives the class
 * target_ids[n, j] the probability p_j, in one of three ways (`target_is`):
 *   log-probabilities  log p_j = target_j          probabilities  p_j = target_j
 *   logits             p_j is the softmax of target / temperature over the row's entries: the rest of p is 0
 * Log-probabilities and probabilities are used as they are. The temperature does not change them.
 *   support S   the classes of the row's entries. If several entries have one class only the first counts. So a list may be
 *               padded with its own classes. A class out of [0, V) is no entry
 *   tail        all other columns, as one class: q_t = sum_{v not in S} q_v, p_t = max(1 - sum_S p, least_tail). log q_t comes
 *               from a log-sum-exp over these columns. Without such a column p_t is 0
 * D is divergence's sum (divergence.h) over S and the tail, with 0 * log 0 = 0:
 *   kl          sum_S p (log p - log q), with `tail` plus p_t (log p_t - log q_t)
 *   reverse_kl, jsd, tvd   over S and the tail. beta 0 of jsd is kl and beta 1 is reverse_kl
 *   cosine      refused: it needs the teacher's whole row
 *   loss_n = token_scale_n * D, with by_temperature_squared times temperature^2. loss and its reductions are divergence's
 *   dinput[n, v] = dloss * grad_scale * d loss / d x[n, v]   (reduction none: dloss_n * grad_scale * d loss_n / d x[n])
 * With slope s of a class or the tail: reverse_kl log q - log p, jsd (1 - beta)(log q - log m), tvd 1/2 sign(q - p):
 *   e  = kl  q M - p,  M = sum_S p (+ p_t)    others  q (s - M),  M = sum_S q s + q_t s_t
 *   dD/dx_v = e_v / temperature in S, and e_t (q_v / q_t) / temperature outside
 * p_t > 0 = q_t makes kl Inf. p_t = 0 < q_t, as with entries that add up to 1, makes reverse_kl Inf; least_tail prevents that.
 * A row whose label is ignore_index does not count: its loss, dinput and stats are 0. A NaN stays in its row. So do the results
 * of a row of logits whose largest one is not finite.
 *
 * stats, for backward, have three numbers per row: the log-sum-exp of all logits, that of the logits outside of S, and M.
 *
 * Shapes: input, dinput [..., V]; target, target_ids [..., k], any k below 2^31; rows = product of the leading dimensions.
 *   labels, token_scale, token_loss and, with reduction none, dloss have one element per row: each has input's shape without
 *   V, or is flat, [rows]. stats [..., 3]; loss, denominator, error [1]; dloss [1] with mean and sum.
 * dtypes: input f32, bf16, f16; dinput as input; target as input or f32; target_ids i32 or i64; labels i32 or i64, of any
 *   value; error i32; all others f32.
 * target_ids out of [0, V) are refused where the host can read them. With `error`, and on other devices, they raise `error`.
 * Strides: input, target and dinput: last one 1, leading ones free (three at most: tigon.h); all others contiguous.
 * In place: dinput may be input.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_TOPK_DIVERGENCE_H
#define TIGON_OP_TOPK_DIVERGENCE_H

#include <tigon/op/divergence.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The options of divergence, and those of the tail. Zero values mean: kl without the tail, teacher's logits, temperature 1, mean. */
typedef struct tigon_topk_divergence_options {
  tigon_tensor token_scale; /* in [rows] */
  tigon_tensor denominator; /* in [1] */
  tigon_divergence_kind kind;
  tigon_distribution target_is;
  double beta;        /* 0..1 */
  double temperature; /* 0 means 1 */
  int64_t ignore_index;
  tigon_reduction reduction;
  int by_temperature_squared;
  int tail;          /* 1: kl has the tail; the other kinds always have it */
  double least_tail; /* 0..1 */
  uint64_t reserved[4];
} tigon_topk_divergence_options;

/* The outputs of divergence, and an error. */
typedef struct tigon_topk_divergence_outputs {
  tigon_tensor loss;       /* out [1] */
  tigon_tensor token_loss; /* out [rows] */
  tigon_tensor stats;      /* out [..., 3] */
  tigon_tensor error;      /* out [1], set to 1 by an id out of range and else not written */
} tigon_topk_divergence_outputs;

typedef struct tigon_topk_divergence_fwd_args {
  tigon_tensor input;      /* in  [..., V] */
  tigon_tensor target;     /* in  [..., k] */
  tigon_tensor target_ids; /* in  [..., k] */
  tigon_tensor labels;     /* in  [...]; absent: all rows count */
  tigon_topk_divergence_options options;
  tigon_topk_divergence_outputs out;
  tigon_tensor dinput; /* out [..., V]; absent: not computed */
  tigon_tensor dloss;  /* in  [1] or [rows] f32, for dinput; absent: 1 */
  double grad_scale;   /* for dinput; 0 means 1 */
  void *workspace;     /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_topk_divergence_fwd_args;

TIGON_API tigon_status tigon_topk_divergence_fwd(tigon_context *context, const tigon_topk_divergence_fwd_args *args);
TIGON_API tigon_status tigon_topk_divergence_fwd_workspace(tigon_context *context,
                                                           const tigon_topk_divergence_fwd_args *args, size_t *bytes);

typedef struct tigon_topk_divergence_bwd_args {
  tigon_tensor input;      /* in  [..., V], forward's */
  tigon_tensor target;     /* in  [..., k], forward's */
  tigon_tensor target_ids; /* in  [..., k], forward's */
  tigon_tensor labels;     /* in  [...], forward's */
  tigon_tensor stats;      /* in  [..., 3] f32, forward's */
  tigon_topk_divergence_options options;
  tigon_tensor dloss;  /* in  [1] or [rows] f32; absent: 1 */
  tigon_tensor dinput; /* out [..., V] */
  tigon_tensor error;  /* out [1] i32; may be absent */
  double grad_scale;   /* 0 means 1 */
  void *workspace;     /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_topk_divergence_bwd_args;

TIGON_API tigon_status tigon_topk_divergence_bwd(tigon_context *context, const tigon_topk_divergence_bwd_args *args);
TIGON_API tigon_status tigon_topk_divergence_bwd_workspace(tigon_context *context,
                                                           const tigon_topk_divergence_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
