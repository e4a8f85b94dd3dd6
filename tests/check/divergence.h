/* What the checks of divergence and topk_divergence have alike: names of their options, and how rows become the loss.
 * Errors are in units of 2^-24 ("eps"). */
#ifndef TIGON_CHECK_DIVERGENCE_H
#define TIGON_CHECK_DIVERGENCE_H

#include <math.h>

#include "check/check.h"

enum { LOGITS = TIGON_DISTRIBUTION_LOGITS, LOGS = TIGON_DISTRIBUTION_LOG_PROBABILITIES };
enum { CHANCES = TIGON_DISTRIBUTION_PROBABILITIES };
enum { KL, REVERSE, JSD, TVD, COSINE };
enum { MEAN, SUM, NONE };

static const double eps = 0x1p-24, tiny = 0x1p-125;

/* The options of a row's way to the loss. */
typedef struct row_options {
  int reduction;
  double temperature, grad_scale;
  bool token_scale, dloss, denominator, squared;
  tigon_dtype labels; /* 0: none */
} row_options;
#define ROW_OPTIONS(o)                                                                                        \
  ((row_options){(o).reduction, (o).temperature, (o).grad_scale, (o).token_scale, (o).dloss, (o).denominator, \
                 (o).squared, (o).labels})

/* What they come to: tensors of the call, which may be absent, and numbers. */
typedef struct row_loss {
  int64_t rows;
  tigon_reduction reduction;
  tigon_tensor denominator, labels, token_scale, dloss;
  int64_t ignore_index;
  double inverse; /* inverse of mean's denominator */
  double soft;    /* what D is multiplied by */
  double it;      /* 1 / temperature, as f32 */
  double grad_scale;
} row_loss;

/* The arguments `a` of either op with them. */
#define GIVE_ROW_LOSS(a, l)                                                                     \
  ((a).options.denominator = (l).denominator, (a).options.token_scale = (l).token_scale,        \
   (a).options.ignore_index = (l).ignore_index, (a).labels = (l).labels, (a).dloss = (l).dloss, \
   (a).grad_scale = (l).grad_scale)

/* jsd at either end of beta is the other kind. */
static inline int kind_of(int kind, double beta) {
  return kind != JSD ? kind : beta == 0 ? KL : beta == 1 ? REVERSE : JSD;
}

/* factor * terms, 0 where the factor is. */
static inline double times(double factor, double terms) { return factor == 0 ? 0 : factor * terms; }

static inline bool row_counts(const row_loss *l, int64_t r) {
  return !l->labels.ndim || (int64_t)check_value(&l->labels, r) != l->ignore_index;
}

static inline row_loss make_row_loss(check *k, row_options o) {
  const int64_t rows = k->dims[0], one = 1;
  row_loss l = {.rows = rows, .reduction = (tigon_reduction)o.reduction, .inverse = 1, .grad_scale = o.grad_scale};
  l.it = o.temperature != 0 ? (double)(float)(1 / o.temperature) : 1;
  l.soft = o.squared ? (double)(float)(o.temperature * o.temperature) : 1;
  if (o.denominator) {
    l.denominator = check_inout_dense(k, "denominator", TIGON_F32, 1, &one, CHECK_UNIFORM);
    check_make_positive(k, &l.denominator);
  }
  if (o.labels) {
    l.labels = check_indices(k, "labels", o.labels, 1, &rows, -1, 2);
    l.ignore_index = -1;
  }
  l.token_scale = check_may_vector(k, "token_scale", TIGON_F32, rows, CHECK_UNIFORM, o.token_scale);
  l.dloss = check_may_vector(k, "dloss", TIGON_F32, o.reduction == NONE ? rows : 1, CHECK_UNIFORM, o.dloss);
  if (o.reduction != MEAN || k->timed) return l;
  double counted = 0;
  for (int64_t r = 0; r < rows; ++r) counted += row_counts(&l, r);
  if (o.denominator) counted = check_value(&l.denominator, 0);
  l.inverse = counted > 0 ? 1 / counted : 0;
  return l;
}

/* What a row's gradient of D is multiplied by. */
static inline double row_factor(const row_loss *l, int64_t r) {
  double by = fabs(l->inverse) * l->soft;
  if (l->grad_scale != 0) by *= fabs(l->grad_scale);
  if (l->dloss.ndim) by *= fabs(check_value(&l->dloss, l->reduction == TIGON_REDUCTION_NONE ? r : 0));
  if (l->token_scale.ndim) by *= fabs(check_value(&l->token_scale, r));
  return by;
}

/* Forward's outputs but dinput, and how far they may be off. */
typedef struct row_outputs {
  tigon_divergence_outputs out;
  double *loss, *token_loss, *stats;
} row_outputs;

static inline row_outputs make_row_outputs(check *k, const row_loss *l, bool stats) {
  const int64_t of_stats[] = {l->rows, 3};
  const bool none = l->reduction == TIGON_REDUCTION_NONE;
  row_outputs o = {0};
  if (!none) o.out.loss = check_out_vector(k, "loss", TIGON_F32, 1);
  if (none || stats) o.out.token_loss = check_out_vector(k, "token_loss", TIGON_F32, l->rows);
  if (stats) o.out.stats = check_out_dense(k, "stats", TIGON_F32, 2, of_stats);
  o.loss = check_doubles(k, 1), o.token_loss = check_doubles(k, l->rows), o.stats = check_doubles(k, 3 * l->rows);
  return o;
}

/* A row whose divergence is d; errors are of d and of its three stats. */
static inline void bound_row(const row_outputs *o, const row_loss *l, int64_t r, double d, const double errors[4]) {
  double *token_loss = &o->token_loss[r];
  for (int i = 0; i < 4; ++i) *(i ? &o->stats[3 * r + i - 1] : token_loss) = isfinite(errors[i]) ? errors[i] : 0;
  *token_loss *= l->soft;
  if (l->token_scale.ndim) *token_loss *= fabs(check_value(&l->token_scale, r));
  *o->loss += 2 * l->inverse * *token_loss;
  if (isfinite(d)) *o->loss += l->inverse * l->soft * fabs(d);
}

static inline void bound_row_outputs(check *k, const row_outputs *o) {
  if (o->out.loss.ndim) check_bound(k, &o->out.loss, 2, 1, o->loss);
  if (o->out.token_loss.ndim) check_bound(k, &o->out.token_loss, 1, 1, o->token_loss);
  if (o->out.stats.ndim) check_bound(k, &o->out.stats, 1, 1, o->stats);
}

#endif
