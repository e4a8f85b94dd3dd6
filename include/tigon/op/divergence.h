/* divergence: how far a student's distribution is from a teacher's, from logits to loss, and to the student's gradient
 * in the same call on request.
 *
 * For row n, q is the input's distribution and p the target's. Each is given in one of three ways (`input_is`, `target_is`):
 *   logits             log q_v = x_v / temperature - log sum_u exp(x_u / temperature)
 *   log-probabilities  log q_v = x_v           probabilities  q_v = x_v
 * p and q need not add up to 1 if they are given as probabilities. A term with a factor 0 is exactly 0: 0 * log 0 = 0.
 *   kl          D = sum_v p_v (log p_v - log q_v)                       KL(p || q)
 *   reverse_kl  D = sum_v q_v (log q_v - log p_v)                       KL(q || p)
 *   jsd         D = beta KL(p || m) + (1 - beta) KL(q || m),  m = beta p + (1 - beta) q.
 *               beta 0 is kl and beta 1 is reverse_kl, where the formula's own limit would be 0
 *   tvd         D = 1/2 sum_v |p_v - q_v|
 *   cosine      D = 1 - sum_v x_v t_v / (|x| |t|) of the elements x and t themselves; 1 where a norm is 0
 *   loss_n = token_scale_n * D
 *   loss = sum_n loss_n. Reduction mean divides it by `denominator`, or else by the number of rows that count. It is 0 when
 *   the divisor is 0. Others call this batchmean. torch.nn.functional.kl_div's mean also divides by V.
 *   dinput[n, v] = dloss * grad_scale * d loss / d x[n, v]   (reduction none: dloss_n * grad_scale * d loss_n / d x[n])
 * The gradient follows from g_v = d D / d log q_v:
 *   kl -p_v    reverse_kl q_v (log q_v - log p_v + 1)    jsd (1 - beta) q_v (log q_v - log m_v)
 *   tvd 1/2 q_v sign(q_v - p_v), sign(0) = 0, so that padding (p = q = 0) gets none
 *   logits             d D / d x_v = (g_v - q_v sum_u g_u) / temperature
 *   log-probabilities  d D / d x_v = g_v       probabilities  d D / d x_v = g_v / q_v, 0 where p_v = q_v = 0
 *   cosine             d D / d x_v = -(t_v / |t| - c x_v / |x|) / |x|, c = 1 - D; 0 where a norm is 0
 * With by_temperature_squared D and its gradient are multiplied by temperature^2, but stats are not.
 * The target gets no gradient.
 * p_v > 0 = q_v makes kl Inf. q_v > 0 = p_v makes reverse_kl Inf, and the gradient of its logits Inf or NaN.
 * A row whose label is ignore_index does not count: its loss, dinput and stats are 0. A NaN stays in its row. So do the
 * results of a row of logits whose largest one is not finite.
 * topk_divergence.h is for a teacher of which only the top k classes are known.
 *
 * stats, for backward, have three numbers per row. The first two are the log-sum-exp of the input's and of the target's logits,
 *   each 0 where they are no logits. The third is the sum in the gradient of logits, over v of:
 *     kl p_v    reverse_kl q_v (log q_v - log p_v)    jsd (1 - beta) q_v (log q_v - log m_v)    tvd 1/2 q_v sign(q_v - p_v)
 *   For cosine they are |x|, |t| and c.
 *
 * Shapes: input, target, dinput [..., V], rows = product of the leading dimensions. labels, token_scale, token_loss
 *   and, with reduction none, dloss have one element per row. Each has input's shape without V, or is flat, [rows].
 *   stats [..., 3]; loss, denominator [1]; dloss [1] with mean and sum.
 * dtypes: input f32, bf16, f16; target, dinput as input; labels i32 or i64, of any value; all others f32.
 * Strides: input, target and dinput: last one 1, leading ones free (three at most: tigon.h); all others contiguous.
 * In place: dinput may be input or target.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE.
 * Source: jsd is the generalised one of arXiv:2306.13649. */
#ifndef TIGON_OP_DIVERGENCE_H
#define TIGON_OP_DIVERGENCE_H

#include <tigon/op/cross_entropy.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tigon_divergence_kind {
  TIGON_DIVERGENCE_KL = 0,
  TIGON_DIVERGENCE_REVERSE_KL = 1,
  TIGON_DIVERGENCE_JSD = 2,
  TIGON_DIVERGENCE_TVD = 3,
  TIGON_DIVERGENCE_COSINE = 4,
} tigon_divergence_kind;

/* How the elements of a row give its distribution. */
typedef enum tigon_distribution {
  TIGON_DISTRIBUTION_LOGITS = 0,
  TIGON_DISTRIBUTION_LOG_PROBABILITIES = 1,
  TIGON_DISTRIBUTION_PROBABILITIES = 2,
} tigon_distribution;

/* Zero values mean: kl of logits, temperature 1, mean. */
typedef struct tigon_divergence_options {
  tigon_tensor token_scale; /* in [rows] f32; absent: all 1 */
  tigon_tensor denominator; /* in [1] f32, only with mean; absent: the number of rows that count */
  tigon_divergence_kind kind;
  tigon_distribution input_is;
  tigon_distribution target_is;
  double beta;          /* 0..1, for jsd */
  double temperature;   /* 0 means 1; else > 0; divides input and target where they are logits */
  int64_t ignore_index; /* only with labels */
  tigon_reduction reduction;
  int by_temperature_squared; /* 1: D times temperature^2 */
  uint64_t reserved[4];
} tigon_divergence_options;

/* Each may be absent. */
typedef struct tigon_divergence_outputs {
  tigon_tensor loss;       /* out [1] f32; absent with reduction none, else required */
  tigon_tensor token_loss; /* out [rows] f32, before the division of mean; required with reduction none */
  tigon_tensor stats;      /* out [..., 3] f32, for backward */
} tigon_divergence_outputs;

typedef struct tigon_divergence_fwd_args {
  tigon_tensor input;  /* in  [..., V] */
  tigon_tensor target; /* in  [..., V] */
  tigon_tensor labels; /* in  [...]; absent: all rows count */
  tigon_divergence_options options;
  tigon_divergence_outputs out;
  tigon_tensor dinput; /* out [..., V]; absent: not computed */
  tigon_tensor dloss;  /* in  [1] or [rows] f32, for dinput; absent: 1 */
  double grad_scale;   /* for dinput; 0 means 1 */
  void *workspace;     /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_divergence_fwd_args;

TIGON_API tigon_status tigon_divergence_fwd(tigon_context *context, const tigon_divergence_fwd_args *args);
TIGON_API tigon_status tigon_divergence_fwd_workspace(tigon_context *context, const tigon_divergence_fwd_args *args,
                                                      size_t *bytes);

typedef struct tigon_divergence_bwd_args {
  tigon_tensor input;  /* in  [..., V], forward's */
  tigon_tensor target; /* in  [..., V], forward's */
  tigon_tensor labels; /* in  [...], forward's */
  tigon_tensor stats;  /* in  [..., 3] f32, forward's */
  tigon_divergence_options options;
  tigon_tensor dloss;  /* in  [1] or [rows] f32; absent: 1 */
  tigon_tensor dinput; /* out [..., V] */
  double grad_scale;   /* 0 means 1 */
  void *workspace;     /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_divergence_bwd_args;

TIGON_API tigon_status tigon_divergence_bwd(tigon_context *context, const tigon_divergence_bwd_args *args);
TIGON_API tigon_status tigon_divergence_bwd_workspace(tigon_context *context, const tigon_divergence_bwd_args *args,
                                                      size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
