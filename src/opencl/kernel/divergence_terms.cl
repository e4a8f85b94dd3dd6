/* What divergence works out of an element of both distributions, and of a row besides its elements. */
#include "loss.cl"
#include "divergence.h"

/* ---- a row's losses ---- */

/* A call's memory besides both distributions; NULL: absent. */
typedef struct outputs {
  memory labels, token_scale, dloss, token_loss, soft_losses, hard_losses, hard_lse, stats;
} outputs;

static inline bool row_counts(const divergence_numbers *k, const outputs *o, long r) {
  bool out_of_range;
  return !o->labels || label_at(&k->rule, o->labels, r, &out_of_range) >= 0;
}
/* The column of the row's class, where the cross entropy asks for it; -1: it is not here. */
static inline long class_column(const divergence_numbers *k, const outputs *o, long r) {
  bool out_of_range;
  if (k->hard == 0) return -1;
  const long label = label_at(&k->rule, o->labels, r, &out_of_range), column = label - k->panel_begin;
  return label >= 0 && column >= 0 && column < k->cols ? column : -1;
}

/* What a gradient is multiplied by. */
static inline pair row_factor(const divergence_numbers *k, const outputs *o, long r, pair grad, float inverse) {
  const pair by = wide_times(wide_times(grad, inverse), float_or(o->dloss, k->dloss_rows ? r : 0, 1));
  return wide_times(by, float_or(o->token_scale, r, 1));
}

/* As divergence's header says; hard: log-sum-exp of the cross entropy. */
typedef struct row_stats {
  pair input, target, mean, hard;
} row_stats;
static inline row_stats no_stats() { return (row_stats){{0, 0}, {0, 0}, {0, 0}, {0, 0}}; }
static inline row_stats stats_at(const outputs *o, long r) {
  return (row_stats){one_float(float_at(o->stats, 3 * r)), one_float(float_at(o->stats, 3 * r + 1)),
                     one_float(float_at(o->stats, 3 * r + 2)), one_float(float_or(o->hard_lse, r, 0))};
}

/* By one work-item. */
static inline void store_row(const divergence_numbers *k, const outputs *o, long r, pair soft, pair hard, row_stats s) {
  pair loss = wide_times(soft, k->soft);
  if (k->hard != 0) loss = wide_sum(loss, wide_times(hard, k->hard));
  put_float(o->token_loss, r, wide_times(loss, float_or(o->token_scale, r, 1)).high);
  put_float(o->soft_losses, r, soft.high);
  put_float(o->hard_losses, r, hard.high);
  put_float(o->hard_lse, r, s.hard.high);
  put_float(o->stats, 3 * r, s.input.high);
  put_float(o->stats, 3 * r + 1, s.target.high);
  put_float(o->stats, 3 * r + 2, s.mean.high);
}

/* ---- elements ---- */

/* An element's probability and its logarithm. */
typedef struct chance {
  vf log, of;
} chance;

static inline vf unless_0(vf factor, vf v) { return either(factor == 0, (vf)(0.0f), v); }

/* The probability of z, which is under the cap. One that underflows is still none of 0, so that it times Inf is Inf. */
static inline chance chance_of(int is, const logit_map *map, pair lse, vf z) {
  if (is == TIGON_DISTRIBUTION_PROBABILITIES) return (chance){log_of(z), z};
  if (is == TIGON_DISTRIBUTION_LOG_PROBABILITIES) lse = one_float(0);
  const vf log = above(map, z, lse.high) - lse.low;
  vf of = exp_of(log);
  of = either(of < 0x1p-126f, (vf)(0x1p-126f), of);
  return (chance){log, either(log == -INFINITY, (vf)(0.0f), of)};
}

/* -1, 0, 1 or NaN. */
static inline vf sign_of(vf v) { return either(v > 0, (vf)(1.0f), either(v < 0, (vf)(-1.0f), v)); }

/* log q - log m and log p - log m of jsd, without m: log m - log q = log (1 - beta) + log(1 + e^v), log m - log p = log beta +
 * log(1 + e^-v) with v = log p - log q + log beta - log (1 - beta). */
typedef struct logs {
  vf q, p;
} logs;
static inline logs to_mixture(const divergence_numbers *k, chance q, chance p) {
  const vf v = p.log - q.log + (k->log_beta.high - k->log_rest.high), near = log_of(1 + exp_to_64_of(-fabs(v)));
  return (logs){-(k->log_rest.high + (either(v < 0, (vf)(0.0f), v) + near)),
                -(k->log_beta.high + (either(v > 0, (vf)(0.0f), -v) + near))};
}

/* What an element adds to the divergence, and to what the gradient of logits takes off. */
typedef struct terms {
  vf loss, mean;
} terms;
static inline terms terms_of(const divergence_numbers *k, chance q, chance p) {
  switch (k->kind) {
    case TIGON_DIVERGENCE_KL: return (terms){unless_0(p.of, p.of * (p.log - q.log)), p.of};
    case TIGON_DIVERGENCE_REVERSE_KL: {
      const vf loss = unless_0(q.of, q.of * (q.log - p.log));
      return (terms){loss, loss};
    }
    case TIGON_DIVERGENCE_JSD: {
      const logs to = to_mixture(k, q, p);
      const vf of_q = k->rest * unless_0(q.of, q.of * to.q);
      return (terms){fma((vf)(k->beta), unless_0(p.of, p.of * to.p), of_q), of_q};
    }
    default: {
      const vf apart = q.of - p.of;
      return (terms){0.5f * fabs(apart), 0.5f * (q.of * sign_of(apart))};
    }
  }
}

/* The gradient in what the input says. `off`: what logits take off, else -1 for reverse_kl, whose slope by q has a 1, or 0. */
static inline vf slope_of(const divergence_numbers *k, float off, chance q, chance p) {
  vf slope;
  switch (k->kind) {
    case TIGON_DIVERGENCE_KL:
      if (k->input_is == TIGON_DISTRIBUTION_LOGITS) return q.of * off - p.of;
      if (k->input_is == TIGON_DISTRIBUTION_LOG_PROBABILITIES) return -p.of;
      return unless_0(p.of, -(p.of / q.of));
    case TIGON_DIVERGENCE_REVERSE_KL: slope = q.log - p.log; break;
    case TIGON_DIVERGENCE_JSD: slope = k->rest * to_mixture(k, q, p).q; break;
    default: slope = 0.5f * sign_of(q.of - p.of); break;
  }
  slope -= off;
  if (k->input_is != TIGON_DISTRIBUTION_PROBABILITIES) return unless_0(q.of, q.of * slope);
  return either(q.of == 0, unless_0(p.of, slope), slope);
}
