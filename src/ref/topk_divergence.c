/* topk_divergence, as its header writes it. With TIGON_F64 what is f32 to a caller is f64 too, but options' tensors. */
#include <float.h>
#include <math.h>

#include "core/labels.h"
#include "ref/ref.h"

typedef tigon_topk_divergence_problem problem;

static tigon_dtype scalar_dtype(const problem *p) { return (int)p->dtype == TIGON_F64 ? p->dtype : TIGON_F32; }

static void put(const problem *p, void *out, int64_t i, double value) {
  if (out) tigon_store_f64(out, i, scalar_dtype(p), value);
}

/* What backward knows of a row, and what it makes anew. */
typedef struct row {
  double lse, outside, mean; /* stats */
  double target_lse, tail;   /* p_t */
  double hard;               /* log-sum-exp of the cross entropy */
} row;

/* A class, or the tail. */
typedef struct element {
  double log_q, q, log_p, p;
} element;

/* What the row has of class v, which a panel may not have, and its logit. */
static double input_at(const problem *p, int64_t r, int64_t v) {
  return tigon_ref_at(&p->base.space, &p->base.input, p->dtype, r, v - p->base.panel_begin);
}
static double plain_logit(const problem *p, int64_t r, int64_t v) {
  return tigon_ref_logit(&p->base.input_map, input_at(p, r, v));
}
static double logit(const problem *p, int64_t r, int64_t v) {
  return (double)p->base.inverse_temperature * plain_logit(p, r, v);
}

static int64_t vocab_of(const problem *p) { return p->base.vocab ? p->base.vocab : p->base.cols; }

static int64_t id_at(const problem *p, int64_t r, int64_t j) {
  return tigon_load_index(p->ids.data, tigon_row_offset(&p->base.space, &p->ids, r) + j, p->id_dtype);
}

/* The first entry of class v; -1: it is none of the support. */
static int64_t entry_of(const problem *p, int64_t r, int64_t v) {
  for (int64_t j = 0; j < p->k; ++j)
    if (id_at(p, r, j) == v) return j;
  return -1;
}

/* The class of entry j, where that is the first of a class. */
static int64_t class_of(const problem *p, int64_t r, int64_t j) {
  const int64_t v = id_at(p, r, j);
  return v >= 0 && v < vocab_of(p) && entry_of(p, r, v) == j ? v : -1;
}

static double target_at(const problem *p, int64_t r, int64_t j) {
  return tigon_ref_at(&p->base.space, &p->base.target, p->target_dtype, r, j);
}

/* Sums over the logits in the support, those outside, the target's entries, or all without the temperature. */
typedef enum which { SUPPORT, OUTSIDE, TARGET, PLAIN } which;
static bool next_of(const problem *p, int64_t r, which of, int64_t i, double *z) {
  const bool outside = of == OUTSIDE;
  const int64_t v = of == PLAIN ? i : outside ? (entry_of(p, r, i) < 0 ? i : -1) : class_of(p, r, i);
  if (v < 0) return false;
  *z = of == TARGET  ? (double)p->base.inverse_temperature * target_at(p, r, i)
       : of == PLAIN ? plain_logit(p, r, v)
                     : logit(p, r, v);
  return true;
}

/* -Inf of nothing, NaN where there is no largest. */
static double log_sum_exp(const problem *p, int64_t r, which of) {
  const int64_t count = of == OUTSIDE || of == PLAIN ? p->base.cols : p->k;
  double largest = -INFINITY, sum = 0, z = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (!next_of(p, r, of, i, &z)) continue;
    if (z != z || z == (double)INFINITY) return (double)NAN;
    largest = fmax(largest, z);
  }
  if (largest == -(double)INFINITY) return largest;
  for (int64_t i = 0; i < count; ++i)
    if (next_of(p, r, of, i, &z)) sum += tigon_ref_exp(z - largest);
  return largest + log(sum);
}

static double log_of(double x) { return x > 0 ? log(x) : x == 0 ? -(double)INFINITY : (double)NAN; }

/* A probability that underflows is still none of 0. */
static double chance(double log_of_it) {
  const double of = tigon_ref_exp(log_of_it);
  return of < DBL_MIN ? (log_of_it == -(double)INFINITY ? 0 : DBL_MIN) : of;
}

/* Entry j without a q. */
static element entry_at(const problem *p, const row *s, int64_t r, int64_t j) {
  element e = {0, 0, 0, 0};
  const double t = target_at(p, r, j);
  if (p->base.target_is == TIGON_DISTRIBUTION_PROBABILITIES) {
    e.p = t, e.log_p = log_of(t);
    return e;
  }
  const bool logits = p->base.target_is == TIGON_DISTRIBUTION_LOGITS;
  e.log_p = logits ? (double)p->base.inverse_temperature * t - s->target_lse : t;
  e.p = chance(e.log_p);
  return e;
}

static element element_at(const problem *p, const row *s, int64_t r, int64_t j, int64_t v) {
  element e = entry_at(p, s, r, j);
  e.log_q = logit(p, r, v) - s->lse;
  e.q = chance(e.log_q);
  return e;
}

static element tail_of(const row *s) {
  const double log_q = s->outside - s->lse;
  return (element){log_q, chance(log_q), log_of(s->tail), s->tail};
}

static double log_mixture(const problem *p, const element *e) {
  const double a = e->log_p + log((double)p->base.beta), b = e->log_q + log1p(-(double)p->base.beta);
  const double high = a > b ? a : b, low = a > b ? b : a;
  return low == -(double)INFINITY ? high : high + log1p(tigon_ref_exp(low - high));
}

static double sign(double v) { return v > 0 ? 1 : v < 0 ? -1 : v; }

static double times(double factor, double terms) { return factor == 0 ? 0 : factor * terms; }

static double term(const problem *p, const element *e) {
  const double beta = (double)p->base.beta;
  switch (p->base.kind) {
    case TIGON_DIVERGENCE_KL: return times(e->p, e->log_p - e->log_q);
    case TIGON_DIVERGENCE_REVERSE_KL: return times(e->q, e->log_q - e->log_p);
    case TIGON_DIVERGENCE_JSD:
      return beta * times(e->p, e->log_p - log_mixture(p, e)) + (1 - beta) * times(e->q, e->log_q - log_mixture(p, e));
    default: return 0.5 * fabs(e->p - e->q);
  }
}

static double slope(const problem *p, const element *e) {
  switch (p->base.kind) {
    case TIGON_DIVERGENCE_REVERSE_KL: return e->log_q - e->log_p;
    case TIGON_DIVERGENCE_JSD: return (1 - (double)p->base.beta) * (e->log_q - log_mixture(p, e));
    default: return 0.5 * sign(e->q - e->p);
  }
}

static double gradient(const problem *p, const row *s, const element *e) {
  if (p->base.kind == TIGON_DIVERGENCE_KL) return times(e->q, s->mean) - e->p;
  return times(e->q, slope(p, e) - s->mean);
}

/* The teacher's log-sum-exp and tail. */
static void know_target(const problem *p, int64_t r, row *s) {
  int64_t classes = 0;
  double sum = 0;
  s->target_lse = p->base.target_is == TIGON_DISTRIBUTION_LOGITS ? log_sum_exp(p, r, TARGET) : 0;
  for (int64_t j = 0; j < p->k; ++j) {
    const int64_t v = class_of(p, r, j);
    if (v < 0) continue;
    sum += entry_at(p, s, r, j).p;
    ++classes;
  }
  s->tail = 1 - sum < p->least_tail ? p->least_tail : 1 - sum;
  if (!p->tail || classes == vocab_of(p)) s->tail = 0;
}

/* D. */
static double forward_row(const problem *p, int64_t r, row *s) {
  const double outside = log_sum_exp(p, r, OUTSIDE), inside = log_sum_exp(p, r, SUPPORT);
  const double high = outside > inside ? outside : inside, low = outside > inside ? inside : outside;
  s->lse = low == -(double)INFINITY ? high : high + log1p(tigon_ref_exp(low - high));
  if (outside != outside || inside != inside) s->lse = (double)NAN;
  s->outside = s->lse == s->lse ? outside : s->lse;
  know_target(p, r, s);
  const element tail = tail_of(s);
  const bool kl = p->base.kind == TIGON_DIVERGENCE_KL;
  double sum = term(p, &tail);
  s->mean = kl ? tail.p : times(tail.q, slope(p, &tail));
  for (int64_t j = 0; j < p->k; ++j) {
    const int64_t v = class_of(p, r, j);
    if (v < 0) continue;
    const element e = element_at(p, s, r, j, v);
    sum += term(p, &e);
    s->mean += kl ? e.p : times(e.q, slope(p, &e));
  }
  return sum;
}

static void gradient_row(const problem *p, int64_t r, const row *s, bool counts) {
  const tigon_divergence_problem *base = &p->base;
  double scale = (double)base->grad_scale * tigon_load_f64(base->inverse, 0, scalar_dtype(p));
  if (base->dloss) scale *= (double)base->dloss[base->reduction == TIGON_REDUCTION_NONE ? r : 0];
  if (base->token_scale) scale *= (double)base->token_scale[r];
  const int64_t label = counts ? tigon_divergence_class(base, r) : -1;
  for (int64_t column = 0; column < base->cols; ++column) {
    const int64_t v = base->panel_begin + column, j = counts ? entry_of(p, r, v) : -1;
    double d = 0;
    if (j >= 0) {
      const element e = element_at(p, s, r, j, v);
      d = gradient(p, s, &e);
    } else if (counts) {
      const element tail = tail_of(s);
      const bool masked = s->outside == -(double)INFINITY;
      d = masked ? 0 : times(chance(logit(p, r, v) - s->outside), gradient(p, s, &tail));
    }
    d *= (double)base->soft * (double)base->inverse_temperature;
    if (counts && base->hard != 0)
      d += (double)base->hard * (tigon_ref_exp(plain_logit(p, r, v) - s->hard) - (column == label));
    d *= scale * tigon_ref_logit_slope(&base->input_map, input_at(p, r, v));
    tigon_ref_put(&base->space, &base->dinput, p->dtype, r, column, counts ? d : 0);
  }
}

static void raise_error(const problem *p, int64_t r) {
  for (int64_t j = 0; p->error_flag && j < p->k; ++j)
    if (id_at(p, r, j) < 0 || id_at(p, r, j) >= vocab_of(p)) *p->error_flag = 1;
}

/* A part that needs no entries is divergence's own. */
static tigon_status run_part(tigon_queue *queue, const problem *p, int part) {
  tigon_divergence_problem base = p->base;
  if (base.parts == TIGON_DIVERGENCE_ROWS) return TIGON_OK;
  base.parts = part;
  return tigon_ref_divergence_fwd(queue, &base);
}

tigon_status tigon_ref_topk_divergence_fwd(tigon_queue *queue, const problem *p) {
  const tigon_divergence_problem *base = &p->base;
  run_part(queue, p, TIGON_DIVERGENCE_COUNT);
  for (int64_t r = 0; r < base->space.rows; ++r) {
    const bool counts = tigon_divergence_counts(base, r);
    const bool hard = counts && base->hard != 0;
    row s = {.hard = hard ? log_sum_exp(p, r, PLAIN) : 0};
    const double apart = counts ? forward_row(p, r, &s) : 0;
    const double entropy = hard ? s.hard - plain_logit(p, r, tigon_divergence_class(base, r)) : 0;
    double loss = (double)base->soft * apart + (double)base->hard * entropy;
    if (counts && base->token_scale) loss *= (double)base->token_scale[r];
    raise_error(p, r);
    put(p, base->token_loss, r, loss);
    put(p, base->soft_losses, r, apart);
    put(p, base->hard_losses, r, entropy);
    put(p, base->hard_lse, r, s.hard);
    put(p, base->stats, 3 * r, s.lse);
    put(p, base->stats, 3 * r + 1, s.outside);
    put(p, base->stats, 3 * r + 2, s.mean);
    if (base->dinput.data) gradient_row(p, r, &s, counts);
  }
  return run_part(queue, p, TIGON_DIVERGENCE_REDUCE);
}

tigon_status tigon_ref_topk_divergence_bwd(tigon_queue *queue, const problem *p) {
  run_part(queue, p, TIGON_DIVERGENCE_COUNT);
  for (int64_t r = 0; r < p->base.space.rows; ++r) {
    const bool counts = tigon_divergence_counts(&p->base, r);
    row s = {.lse = tigon_load_f64(p->base.stats, 3 * r, scalar_dtype(p)),
             .outside = tigon_load_f64(p->base.stats, 3 * r + 1, scalar_dtype(p)),
             .mean = tigon_load_f64(p->base.stats, 3 * r + 2, scalar_dtype(p)),
             .hard = p->base.hard != 0 ? tigon_load_f64(p->base.hard_lse, r, scalar_dtype(p)) : 0};
    if (counts) know_target(p, r, &s);
    raise_error(p, r);
    gradient_row(p, r, &s, counts);
  }
  return TIGON_OK;
}
