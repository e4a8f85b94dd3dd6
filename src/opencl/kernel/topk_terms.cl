/* src/core/topk_divergence.h in two floats: what a class of the support, or the tail, comes to. */
#include "divergence_terms.cl"
#include "topk_divergence.h"

/* log(e^a + e^b) */
static inline pair log_add(pair a, pair b) {
  if (isnan(a.high) || isnan(b.high)) return one_float(NAN);
  const pair high = wide_less(b, a) ? a : b, low = wide_less(b, a) ? b : a;
  if (low.high == -INFINITY) return high;
  return wide_sum(high, wide_log(wide_add(wide_exp(wide_difference(low, high)), 1)));
}

/* ---- the log-sum-exp of numbers that come one by one, to work-items that share a row ---- */

typedef struct few {
  float reference; /* -Inf: none has come, but for -Inf and NaN */
  pair sum;        /* the sum of e^(z - reference) */
} few;
static inline few no_few() { return (few){-INFINITY, {0, 0}}; }
static inline void few_add(few *s, pair z) {
  if (isnan(z.high)) s->sum = one_float(NAN);
  if (!(z.high > -INFINITY)) return;
  if (z.high > s->reference) {
    if (s->reference > -INFINITY) s->sum = wide_mul(s->sum, wide_exp(two_sum(s->reference, -z.high)));
    s->reference = z.high;
  }
  s->sum = wide_sum(s->sum, wide_exp(wide_add(z, -s->reference)));
}
/* Joins all work-items. Without a largest one it is NaN, without any -Inf. */
static inlined pair few_lse(room space, few s) {
  const float reference = row_tops(((tops){{s.reference, s.reference}})).of[0];
  const float apart = s.reference > -INFINITY ? s.reference - reference : 0;
  if (apart < 0) s.sum = wide_mul(s.sum, wide_exp(two_sum(s.reference, -reference)));
  const pair sum = row_triple(((triple){{s.sum, {0, 0}, {0, 0}}})).of[0];
  if (isnan(sum.high) || reference == INFINITY) return one_float(NAN);
  return reference == -INFINITY ? one_float(reference) : wide_add(wide_log(sum), reference);
}

/* ---- a class, or the tail ---- */

/* A row: what the header's stats say, and what only the teacher knows. */
typedef struct topk_row {
  pair lse, outside, mean, target_lse, tail;
} topk_row;

/* A probability, of * by. `by` is 1, or 2^-120 so that its products are right where it would underflow. One that underflows all the same
 * is still none of 0, so that it times Inf is Inf. */
typedef struct share {
  pair of;
  float by;
} share;
static inline pair value_of(share a) { return wide_scale(a.of, a.by); }
static inline share share_of(pair log) {
  if (!(log.high < -80)) return (share){wide_exp(log), 1};
  pair of = wide_exp(wide_sum(log, ln2_times(120)));
  if (of.high < 0x1p-126f) of = one_float(log.high == -INFINITY ? 0 : 0x1p-126f);
  return (share){of, 0x1p-120f};
}
static inline pair times(share factor, pair terms) {
  return factor.of.high == 0 ? one_float(0) : wide_scale(wide_mul(factor.of, terms), factor.by);
}

typedef struct topk_element {
  pair log_q, log_p;
  share q, p;
} topk_element;

/* What entry t says of p. */
static inline void set_target(const topk_numbers *k, const topk_row *s, float t, topk_element *e) {
  e->log_p = one_float(t);
  if (k->of.target_is == TIGON_DISTRIBUTION_PROBABILITIES) {
    e->p = (share){e->log_p, 1};
    e->log_p = wide_log(e->log_p);
    return;
  }
  if (k->of.target_is == TIGON_DISTRIBUTION_LOGITS)
    e->log_p = wide_difference(logit_product(t, k->inverse_temperature), s->target_lse);
  e->p = share_of(e->log_p);
}
static inline topk_element element_of(const topk_numbers *k, const topk_row *s, float x, float t) {
  topk_element e;
  e.log_q = wide_difference(logit_of(&k->of.q, x).z, s->lse);
  e.q = share_of(e.log_q);
  set_target(k, s, t, &e);
  return e;
}
static inline topk_element tail_of(const topk_row *s) {
  const pair log_q = wide_difference(s->outside, s->lse);
  return (topk_element){log_q, wide_log(s->tail), share_of(log_q), {s->tail, 1}};
}

/* log q - log m and log p - log m of jsd, without m. */
typedef struct topk_logs {
  pair q, p;
} topk_logs;
static inline topk_logs wide_to_mixture(const topk_numbers *k, const topk_element *e) {
  const pair odds = wide_difference(k->of.log_beta, k->of.log_rest);
  const pair v = wide_sum(wide_difference(e->log_p, e->log_q), odds);
  const pair near = wide_log(wide_add(wide_exp(v.high < 0 ? v : wide_minus(v)), 1));
  const pair of_q = v.high < 0 ? near : wide_sum(v, near), of_p = v.high > 0 ? near : wide_difference(near, v);
  return (topk_logs){wide_minus(wide_sum(k->of.log_rest, of_q)), wide_minus(wide_sum(k->of.log_beta, of_p))};
}

/* s of the operator's header, but for kl. */
static inline pair topk_slope(const topk_numbers *k, const topk_element *e) {
  if (k->of.kind == TIGON_DIVERGENCE_REVERSE_KL) return wide_difference(e->log_q, e->log_p);
  if (k->of.kind == TIGON_DIVERGENCE_JSD) return wide_mul(k->rest, wide_to_mixture(k, e).q);
  const float apart = wide_difference(value_of(e->q), value_of(e->p)).high;
  return one_float(apart > 0 ? 0.5f : apart < 0 ? -0.5f : apart);
}

/* Adds what a class adds to D and to M. */
static inline void add_class(const topk_numbers *k, const topk_element *e, pair *loss, pair *mean) {
  if (k->of.kind == TIGON_DIVERGENCE_KL) {
    *loss = wide_sum(*loss, times(e->p, wide_difference(e->log_p, e->log_q)));
    *mean = wide_sum(*mean, value_of(e->p));
    return;
  }
  const pair of_q = times(e->q, topk_slope(k, e));
  pair term = of_q;
  *mean = wide_sum(*mean, of_q);
  if (k->of.kind == TIGON_DIVERGENCE_JSD) {
    term = wide_sum(of_q, wide_times(times(e->p, wide_to_mixture(k, e).p), k->of.beta));
  } else if (k->of.kind == TIGON_DIVERGENCE_TVD) {
    const pair apart = wide_difference(value_of(e->q), value_of(e->p));
    term = wide_scale(apart, apart.high < 0 ? -0.5f : 0.5f);
  }
  *loss = wide_sum(*loss, term);
}

/* e of the operator's header. */
static inline pair topk_gradient(const topk_numbers *k, const topk_row *s, const topk_element *e) {
  if (k->of.kind == TIGON_DIVERGENCE_KL) return wide_difference(times(e->q, s->mean), value_of(e->p));
  return times(e->q, wide_difference(topk_slope(k, e), s->mean));
}
