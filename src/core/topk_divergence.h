/* topk_divergence in f64, of one class of the support or of the tail at a time, as there are few: the CPU's and the GPU's
 * kernels walk over these. */
#ifndef TIGON_CORE_TOPK_DIVERGENCE_H
#define TIGON_CORE_TOPK_DIVERGENCE_H

#include <float.h>
#include <math.h>

#include "core/labels.h"
#include "core/logit_map.h"

/* libm sets errno where a result is beyond f64. A NaN stays one. */
TIGON_SHARED double tigon_topk_exp(double x) { return x < -708 ? 0 : x > 709 ? (double)INFINITY : exp(x); }
TIGON_SHARED double tigon_topk_log(double x) { return x > 0 ? log(x) : x == 0 ? -(double)INFINITY : (double)NAN; }

/* log(e^a + e^b) */
TIGON_SHARED double tigon_topk_log_add(double a, double b) {
  if (a != a || b != b) return (double)NAN;
  const double high = a > b ? a : b, low = a > b ? b : a;
  return low == -(double)INFINITY ? high : high + log1p(tigon_topk_exp(low - high));
}

/* e^(x - largest), 0 where nothing is larger than -Inf. */
TIGON_SHARED double tigon_topk_share(double x, double largest) {
  return tigon_topk_exp(largest == -(double)INFINITY ? x : x - largest);
}

/* A sum of e^(x - largest); the logarithm of that of e^x. Without a largest x it is NaN, of nothing -Inf. */
TIGON_SHARED double tigon_topk_lse(double largest, double sum) {
  if (largest == -(double)INFINITY) return sum == sum ? largest : sum;
  return largest < (double)INFINITY ? largest + tigon_topk_log(sum) : (double)NAN;
}

/* A row: where its entries begin, what the header's stats say, and what only the teacher knows. */
typedef struct tigon_topk_row {
  int64_t ids, target;
  double lse, outside, mean;
  double target_lse, tail;
  double log_beta, log_rest; /* for jsd: log beta, log(1 - beta) */
} tigon_topk_row;

TIGON_SHARED tigon_topk_row tigon_topk_row_of(const tigon_topk_divergence_problem *p, int64_t r) {
  const tigon_divergence_problem *base = &p->base;
  const bool jsd = base->kind == TIGON_DIVERGENCE_JSD;
  tigon_topk_row s = {0, 0, 0, 0, 0, 0, 0, 0, 0};
  s.ids = tigon_row_offset(&base->space, &p->ids, r);
  s.target = tigon_row_offset(&base->space, &base->target, r);
  if (jsd) s.log_beta = log((double)base->beta), s.log_rest = log1p(-(double)base->beta);
  return s;
}

/* Log-sum-exps of both parts of the logits. A NaN is one of both. */
TIGON_SHARED void tigon_topk_know(tigon_topk_row *s, double inside, double outside) {
  s->lse = tigon_topk_log_add(inside, outside);
  s->outside = s->lse == s->lse ? outside : s->lse;
}

/* -1 where it is out of the vocabulary. Of a panel it is the class still. */
TIGON_SHARED int64_t tigon_topk_class(const tigon_topk_divergence_problem *p, const tigon_topk_row *s, int64_t j) {
  const tigon_vector ids = {p->ids.data, p->id_dtype};
  const int64_t v = tigon_vector_index(ids, s->ids + j);
  return v >= 0 && v < tigon_divergence_vocab(&p->base) ? v : -1;
}

/* A class, or the tail. */
typedef struct tigon_topk_element {
  double log_q, q, log_p, p;
} tigon_topk_element;

/* A probability that underflows is still none of 0, so that it times Inf is Inf. */
TIGON_SHARED double tigon_topk_chance(double log_of_it) {
  const double of = tigon_topk_exp(log_of_it);
  return of < DBL_MIN ? (log_of_it == -(double)INFINITY ? 0 : DBL_MIN) : of;
}

/* The log-probability of a logit z. A log-sum-exp of f32 is a rounded one, which of huge logits says nothing of it: 1 is enough. */
TIGON_SHARED double tigon_topk_log_chance(double z, double lse) {
  return z - lse > 1 && fabs(lse) > 0x1p20 ? 1 : z - lse;
}

/* The target's element for an entry t, without q. */
TIGON_SHARED tigon_topk_element tigon_topk_target(const tigon_topk_divergence_problem *p, const tigon_topk_row *s,
                                                  double t) {
  const double scale = (double)p->base.inverse_temperature;
  tigon_topk_element e = {0, 0, t, t};
  if (p->base.target_is == TIGON_DISTRIBUTION_PROBABILITIES) {
    e.log_p = tigon_topk_log(t);
    return e;
  }
  if (p->base.target_is == TIGON_DISTRIBUTION_LOGITS) e.log_p = scale * t - s->target_lse;
  e.p = tigon_topk_chance(e.log_p);
  return e;
}

/* The element for u of the input and an entry t. */
TIGON_SHARED tigon_topk_element tigon_topk_entry(const tigon_topk_divergence_problem *p, const tigon_topk_row *s,
                                                 double u, double t) {
  tigon_topk_element e = tigon_topk_target(p, s, t);
  e.log_q = tigon_topk_log_chance((double)p->base.inverse_temperature * tigon_logit(&p->base.input_map, u), s->lse);
  e.q = tigon_topk_chance(e.log_q);
  return e;
}

TIGON_SHARED tigon_topk_element tigon_topk_tail(const tigon_topk_row *s) {
  const double log_q = s->outside - s->lse;
  const tigon_topk_element e = {log_q, tigon_topk_chance(log_q), tigon_topk_log(s->tail), s->tail};
  return e;
}

/* p_t, where `classes` of the support have `sum` of p. */
TIGON_SHARED double tigon_topk_tail_of(const tigon_topk_divergence_problem *p, int64_t classes, double sum) {
  if (!p->tail || classes == tigon_divergence_vocab(&p->base)) return 0;
  return 1 - sum < p->least_tail ? p->least_tail : 1 - sum;
}

TIGON_SHARED double tigon_topk_times(double factor, double terms) { return factor == 0 ? 0 : factor * terms; }
TIGON_SHARED double tigon_topk_sign(double v) { return v > 0 ? 1 : v < 0 ? -1 : v; }

/* log q - log m and log p - log m of jsd, without m: divergence's kernels say how. */
typedef struct tigon_topk_logs {
  double q, p;
} tigon_topk_logs;
TIGON_SHARED tigon_topk_logs tigon_topk_to_mixture(const tigon_topk_row *s, const tigon_topk_element *e) {
  const double v = e->log_p - e->log_q + s->log_beta - s->log_rest;
  const double near = log1p(tigon_topk_exp(v < 0 ? v : -v));
  const double of_q = v < 0 ? near : v + near, of_p = v > 0 ? near : near - v;
  const tigon_topk_logs to = {-(s->log_rest + of_q), -(s->log_beta + of_p)};
  return to;
}

/* s of the header, but for kl. */
TIGON_SHARED double tigon_topk_slope(const tigon_topk_divergence_problem *p, const tigon_topk_row *s,
                                     const tigon_topk_element *e) {
  if (p->base.kind == TIGON_DIVERGENCE_REVERSE_KL) return e->log_q - e->log_p;
  if (p->base.kind == TIGON_DIVERGENCE_JSD) return (1 - (double)p->base.beta) * tigon_topk_to_mixture(s, e).q;
  return 0.5 * tigon_topk_sign(e->q - e->p);
}

/* What a class adds to D and to M. */
TIGON_SHARED void tigon_topk_add(const tigon_topk_divergence_problem *p, const tigon_topk_row *s,
                                 const tigon_topk_element *e, double *loss, double *mean) {
  const double beta = (double)p->base.beta;
  if (p->base.kind == TIGON_DIVERGENCE_KL) {
    *loss += tigon_topk_times(e->p, e->log_p - e->log_q);
    *mean += e->p;
    return;
  }
  const double of_q = tigon_topk_times(e->q, tigon_topk_slope(p, s, e));
  *mean += of_q;
  if (p->base.kind == TIGON_DIVERGENCE_REVERSE_KL)
    *loss += of_q;
  else if (p->base.kind == TIGON_DIVERGENCE_JSD)
    *loss += of_q + beta * tigon_topk_times(e->p, tigon_topk_to_mixture(s, e).p);
  else
    *loss += 0.5 * fabs(e->q - e->p);
}

/* e of the header. */
TIGON_SHARED double tigon_topk_gradient(const tigon_topk_divergence_problem *p, const tigon_topk_row *s,
                                        const tigon_topk_element *e) {
  if (p->base.kind == TIGON_DIVERGENCE_KL) return tigon_topk_times(e->q, s->mean) - e->p;
  return tigon_topk_times(e->q, tigon_topk_slope(p, s, e) - s->mean);
}

/* A column v outside has the gradient e^(x_v / temperature - lse) * by, before the factor of the row. */
typedef struct tigon_topk_outside {
  double lse, by;
} tigon_topk_outside;
TIGON_SHARED tigon_topk_outside tigon_topk_outside_of(const tigon_topk_divergence_problem *p, const tigon_topk_row *s) {
  const tigon_topk_element tail = tigon_topk_tail(s);
  const bool masked = s->outside == -(double)INFINITY;
  const tigon_topk_outside o = {masked ? 0 : s->outside, masked ? 0 : tigon_topk_gradient(p, s, &tail)};
  return o;
}

/* What a gradient by z / temperature is multiplied by, where a mean is multiplied by `inverse`; `hard` that of the cross
 * entropy by z, 0 without one. A cap's slope comes on top. */
typedef struct tigon_topk_factors {
  double soft, hard;
} tigon_topk_factors;
TIGON_SHARED tigon_topk_factors tigon_topk_factors_of(const tigon_topk_divergence_problem *p, double inverse,
                                                      int64_t r) {
  const tigon_divergence_problem *base = &p->base;
  double by = (double)base->grad_scale * inverse * (double)tigon_logit_scale(&base->input_map);
  if (base->dloss) by *= (double)base->dloss[base->reduction == TIGON_REDUCTION_NONE ? r : 0];
  if (base->token_scale) by *= (double)base->token_scale[r];
  const tigon_topk_factors f = {by * (double)base->soft * (double)base->inverse_temperature, by * (double)base->hard};
  return f;
}

/* The gradient of column u of the input. `soft` is the divergence's gradient by z / temperature for its class. The cross
 * entropy's, which is `one` in the label's class, is added, and the cap applied. */
TIGON_SHARED double tigon_topk_dinput(const tigon_topk_divergence_problem *p, const tigon_topk_factors *f,
                                      double hard_lse, double u, double soft, bool one) {
  double d = f->soft * soft;
  const double log_of = tigon_topk_log_chance(tigon_logit(&p->base.input_map, u), hard_lse);
  if (p->base.hard != 0) d += f->hard * (tigon_topk_exp(log_of) - (one ? 1 : 0));
  return d * tigon_logit_slope(&p->base.input_map, u);
}

#endif
