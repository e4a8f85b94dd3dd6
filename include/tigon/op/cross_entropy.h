/* cross_entropy: from logits to loss, and to dlogits in the same call on request.
 *
 * For row n with label t, class weights w (1 when absent), smoothing e, vocabulary V:
 *   z_v = softcap * tanh(u_v / softcap) with u_v = x_v / temperature      (softcap 0: z_v = u_v)
 *   with softcap_first z_v = softcap * tanh(x_v / softcap) / temperature      (the order of Gemma and TRL)
 *   lse = log sum_v exp(z_v)        z_loss = w_t * lse_square_scale * lse^2
 *   loss_n = token_scale_n * ((1 - e) * w_t * (lse - z_t) + (e / V) * sum_v w_v * (lse - z_v) + z_loss)
 *   loss = sum_n loss_n. Reduction mean divides it by `denominator` if that is given, else by sum_n w_t over the rows that
 *          count. It is 0 when the divisor is 0.
 *   entropy_n = lse - sum_v p_v * z_v,  p = softmax(z), 0 * -Inf = 0
 *   argmax_n = the first v with the largest x_v, where a NaN counts as larger than any number
 *   dlogits[n, v] = dloss * grad_scale * d loss / d x[n, v]   (reduction none: dloss_n * grad_scale * d loss_n / d x[n, v])
 *                   + dentropy_n * grad_scale * d entropy_n / d x[n, v]   (nothing where dentropy_n is 0)
 *   d entropy_n / d z_v = -p_v * (z_v - lse + entropy_n)
 * A row whose label is ignore_index does not count: its losses, entropy and dlogits are 0, and its argmax is -1. Its lse is
 * still stored.
 * Masked logits are -Inf. A row in which all are -Inf has lse -Inf and argmax 0. If it counts, its losses, entropy and
 * dlogits are NaN, as those of a row with a NaN.
 * A label out of [0, V) that is not ignore_index: with `error` given, the row counts as ignored and *error becomes 1. Without
 * `error` a host device refuses the call (nothing is written), and another device reports it at tigon_context_sync().
 *
 * Shapes: logits, dlogits [..., V], rows = product of the leading dimensions. These have one element per row: labels,
 *   token_scale, token_loss, z_loss, lse, entropy, dentropy, argmax and, with reduction none, dloss. Each has logits' shape
 *   without V, or is flat, [rows]. The classes are the last dimension, so torch's [B, V, T] has to be transposed first.
 *   weight [V]; denominator, loss, correct, error [1]; dloss [1] with mean and sum.
 * dtypes: logits f32, bf16, f16; dlogits as logits; labels i32 or i64; argmax, correct i64; error i32; all others f32.
 * Strides: logits and dlogits: last one 1, leading ones free (three at most: tigon.h); all others contiguous.
 * In place: dlogits may be logits.
 * Errors: INVALID, ALIAS, UNSUPPORTED, WORKSPACE. */
#ifndef TIGON_OP_CROSS_ENTROPY_H
#define TIGON_OP_CROSS_ENTROPY_H

#include <tigon/context.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tigon_reduction {
  TIGON_REDUCTION_MEAN = 0,
  TIGON_REDUCTION_SUM = 1,
  TIGON_REDUCTION_NONE = 2,
} tigon_reduction;

/* How logits become a loss. Zero values mean: no ignored label, no smoothing, no z-loss, no softcap, temperature 1. */
typedef struct tigon_cross_entropy_options {
  tigon_tensor weight;      /* in [V] f32, >= 0; absent: all 1 */
  tigon_tensor token_scale; /* in [rows] f32; absent: all 1 */
  tigon_tensor denominator; /* in [1] f32, for mean: tokens of all micro batches; absent: tokens of this call */
  int has_ignore_index;     /* 1: ignore_index counts */
  int64_t ignore_index;
  double label_smoothing;  /* 0..1 */
  double lse_square_scale; /* >= 0 */
  double softcap;          /* 0: none; else > 0 */
  double temperature;      /* 0 means 1; else > 0 */
  int softcap_first;       /* 1: the softcap comes before the temperature */
  tigon_reduction reduction;
  uint64_t reserved[4];
} tigon_cross_entropy_options;

/* The loss and what comes with it. Each may be absent. */
typedef struct tigon_cross_entropy_outputs {
  tigon_tensor loss;       /* out [1] f32; absent with reduction none, else required by forward */
  tigon_tensor token_loss; /* out [rows] f32, before the division of mean; required by forward with reduction none */
  tigon_tensor lse;        /* out [rows] f32, for backward */
  tigon_tensor z_loss;     /* out [rows] f32, token_scale included */
  tigon_tensor entropy;    /* out [rows] f32 */
  tigon_tensor argmax;     /* out [rows] i64 */
  tigon_tensor correct;    /* out [1] i64, rows that count and whose argmax is the label */
  tigon_tensor error;      /* out [1] i32, set to 1 by a label out of range and else not written */
} tigon_cross_entropy_outputs;

typedef struct tigon_cross_entropy_fwd_args {
  tigon_tensor logits; /* in  [..., V] */
  tigon_tensor labels; /* in  [...] */
  tigon_cross_entropy_options options;
  tigon_cross_entropy_outputs out;
  tigon_tensor dlogits;  /* out [..., V]; absent: not computed */
  tigon_tensor dloss;    /* in  [1] or [rows] f32, for dlogits; absent: 1 */
  tigon_tensor dentropy; /* in  [rows] f32, for dlogits; absent: 0 */
  double grad_scale;     /* for dlogits; 0 means 1 */
  void *workspace;       /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_cross_entropy_fwd_args;

TIGON_API tigon_status tigon_cross_entropy_fwd(tigon_context *context, const tigon_cross_entropy_fwd_args *args);
TIGON_API tigon_status tigon_cross_entropy_fwd_workspace(tigon_context *context,
                                                         const tigon_cross_entropy_fwd_args *args, size_t *bytes);

typedef struct tigon_cross_entropy_bwd_args {
  tigon_tensor logits; /* in  [..., V], forward's */
  tigon_tensor labels; /* in  [...], forward's */
  tigon_tensor lse;    /* in  [rows] f32, forward's */
  tigon_cross_entropy_options options;
  tigon_tensor entropy;  /* in  [rows] f32, forward's; may be absent without dentropy */
  tigon_tensor dloss;    /* in  [1] or [rows] f32; absent: 1 */
  tigon_tensor dentropy; /* in  [rows] f32; absent: 0 */
  tigon_tensor dlogits;  /* out [..., V] */
  tigon_tensor error;    /* out [1] i32; may be absent */
  double grad_scale;     /* 0 means 1 */
  void *workspace;       /* 64-byte aligned; NULL when the query says 0 */
  size_t workspace_bytes;
  uint64_t reserved[4];
} tigon_cross_entropy_bwd_args;

TIGON_API tigon_status tigon_cross_entropy_bwd(tigon_context *context, const tigon_cross_entropy_bwd_args *args);
TIGON_API tigon_status tigon_cross_entropy_bwd_workspace(tigon_context *context,
                                                         const tigon_cross_entropy_bwd_args *args, size_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
