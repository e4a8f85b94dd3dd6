/* core/topk_divergence.h in two floats, as the AI core has no f64: what a class of the support, or the tail, comes to. */
#ifndef TIGON_ASCEND_KERNEL_TOPK_TERMS_H
#define TIGON_ASCEND_KERNEL_TOPK_TERMS_H

#include "ascend/kernel/formulas.h"
#include "ascend/kernel/topk_divergence.h"

#define MINUS_INFINITY (-__builtin_inff())

AICORE twofold one_float(float x) { return (twofold){x, 0}; }

/* log(e^a + e^b) */
AICORE twofold log_add(twofold a, twofold b) {
  if (a.hi != a.hi || b.hi != b.hi) return one_float(__builtin_nanf(""));
  const twofold high = twofold_less(b, a) ? a : b, low = twofold_less(b, a) ? b : a;
  if (low.hi == MINUS_INFINITY) return high;
  return twofold_sum(high, twofold_log(twofold_add(twofold_exp(twofold_difference(low, high)), 1)));
}

/* The sum and largest of values that come one by one: first all for `largest`, then all for `sum`. */
typedef struct exponentials {
  float largest; /* before the temperature; a NaN stays */
  twofold sum;   /* sum of e^(scale * (x - largest)) */
} exponentials;

AICORE float larger(float a, float b) { return a > b || a != a ? a : b; }
AICORE void add_exponential(exponentials *e, float scale, float x) {
  const twofold apart = e->largest == MINUS_INFINITY ? one_float(x) : two_sum(x, -e->largest);
  e->sum = twofold_sum(e->sum, twofold_exp(twofold_times(apart, scale)));
}
/* Without a largest x it is NaN, of nothing -Inf. */
AICORE twofold log_sum_exp(const exponentials *e, float scale) {
  if (e->largest == MINUS_INFINITY) return one_float(e->sum.hi == e->sum.hi ? e->largest : e->sum.hi);
  if (!(e->largest < __builtin_inff())) return one_float(__builtin_nanf(""));
  return twofold_sum(two_product(e->largest, scale), twofold_log(e->sum));
}

/* What the header's stats say of a row, and what only the teacher knows. */
typedef struct topk_row {
  twofold lse, outside, mean, target_lse, tail;
} topk_row;

/* A probability, of * by. `by` is 1, or 2^-120 so that its products are right where it would underflow. One that underflows all the
 * same is still none of 0, so that it times Inf is Inf. */
typedef struct chance {
  twofold of;
  float by;
} chance;

AICORE twofold scaled(twofold a, float by) { return (twofold){a.hi * by, a.lo * by}; }
AICORE twofold value_of(chance a) { return a.by == 1 ? a.of : scaled(a.of, a.by); }
AICORE chance chance_of(twofold log_of_it) {
  const float least = 0x1p-126f, power = 120; /* least: 2^-126; power: an exponent of two */
  if (!(log_of_it.hi < -80)) return (chance){twofold_exp(log_of_it), 1};
  const twofold up = twofold_add(two_product(power, TWOFOLD_LN2), power * TWOFOLD_LN2_LOW);
  twofold of = twofold_exp(twofold_sum(log_of_it, up));
  if (of.hi < least) of = one_float(log_of_it.hi == MINUS_INFINITY ? 0 : least);
  return (chance){of, 0x1p-120f};
}
AICORE twofold times(chance factor, twofold terms) {
  if (factor.of.hi == 0) return one_float(0);
  return scaled(twofold_mul(factor.of, terms), factor.by);
}

/* A class, or the tail. */
typedef struct topk_element {
  twofold log_q, log_p;
  chance q, p;
} topk_element;

/* What entry t says of p. */
AICORE void set_target(const topk_divergence_arguments *a, const topk_row *s, float t, topk_element *e) {
  e->log_p = one_float(t);
  if (a->target_is == TIGON_DISTRIBUTION_PROBABILITIES) {
    e->p = (chance){e->log_p, 1};
    e->log_p = twofold_log(e->log_p);
    return;
  }
  if (a->target_is == TIGON_DISTRIBUTION_LOGITS)
    e->log_p = twofold_difference(two_product(a->inverse_temperature, t), s->target_lse);
  e->p = chance_of(e->log_p);
}
/* The logit of element x, `times` as large. */
AICORE twofold mapped(const logit_map *m, float x) {
  const twofold z = logit_of(m, x).z;
  return m->cap > 0 ? twofold_times(z, m->times) : z;
}
AICORE topk_element element_of(const topk_divergence_arguments *a, const topk_row *s, float x, float t) {
  topk_element e;
  e.log_q = twofold_difference(mapped(&a->map, x), s->lse);
  e.q = chance_of(e.log_q);
  set_target(a, s, t, &e);
  return e;
}
AICORE topk_element tail_of(const topk_row *s) {
  const twofold log_q = twofold_difference(s->outside, s->lse);
  return (topk_element){log_q, twofold_log(s->tail), chance_of(log_q), {s->tail, 1}};
}

/* p_t, where `classes` of the support have `sum` of p. */
AICORE twofold tail_left(const topk_divergence_arguments *a, int64_t classes, twofold sum) {
  if (!a->tail || classes == a->vocab) return one_float(0);
  const twofold left = twofold_difference(one_float(1), sum);
  return twofold_less(left, a->least_tail) ? a->least_tail : left;
}

/* log q - log m and log p - log m of jsd, without m. */
typedef struct topk_logs {
  twofold q, p;
} topk_logs;
AICORE topk_logs logs_to_mixture(const topk_divergence_arguments *a, const topk_element *e) {
  const twofold odds = twofold_difference(a->log_beta, a->log_rest);
  const twofold v = twofold_sum(twofold_difference(e->log_p, e->log_q), odds);
  const twofold near = twofold_log(twofold_add(twofold_exp(v.hi < 0 ? v : twofold_minus(v)), 1));
  const twofold of_q = v.hi < 0 ? near : twofold_sum(v, near);
  const twofold of_p = v.hi > 0 ? near : twofold_difference(near, v);
  return (topk_logs){twofold_minus(twofold_sum(a->log_rest, of_q)), twofold_minus(twofold_sum(a->log_beta, of_p))};
}

/* s of the operator's header, but for kl. */
AICORE twofold slope_of(const topk_divergence_arguments *a, const topk_element *e) {
  if (a->kind == TIGON_DIVERGENCE_REVERSE_KL) return twofold_difference(e->log_q, e->log_p);
  if (a->kind == TIGON_DIVERGENCE_JSD) return twofold_mul(a->rest, logs_to_mixture(a, e).q);
  const float apart = twofold_difference(value_of(e->q), value_of(e->p)).hi;
  return one_float(apart > 0 ? 0.5f : apart < 0 ? -0.5f : apart);
}

/* Adds what a class adds to D and to M. */
AICORE void add_class(const topk_divergence_arguments *a, const topk_element *e, twofold *loss, twofold *mean) {
  if (a->kind == TIGON_DIVERGENCE_KL) {
    *loss = twofold_sum(*loss, times(e->p, twofold_difference(e->log_p, e->log_q)));
    *mean = twofold_sum(*mean, value_of(e->p));
    return;
  }
  const twofold of_q = times(e->q, slope_of(a, e));
  twofold term = of_q;
  *mean = twofold_sum(*mean, of_q);
  if (a->kind == TIGON_DIVERGENCE_JSD) {
    term = twofold_sum(of_q, twofold_times(times(e->p, logs_to_mixture(a, e).p), a->beta));
  } else if (a->kind == TIGON_DIVERGENCE_TVD) {
    const twofold apart = twofold_difference(value_of(e->q), value_of(e->p));
    term = twofold_times(apart, apart.hi < 0 ? -0.5f : 0.5f);
  }
  *loss = twofold_sum(*loss, term);
}

/* e of the operator's header. */
AICORE twofold gradient_of(const topk_divergence_arguments *a, const topk_row *s, const topk_element *e) {
  if (a->kind == TIGON_DIVERGENCE_KL) return twofold_difference(times(e->q, s->mean), value_of(e->p));
  return times(e->q, twofold_difference(slope_of(a, e), s->mean));
}

#endif
