/* policy_loss, as its header writes it. With TIGON_F64 all its floats but the options are f64. */
#include <math.h>

#include "ref/ref.h"

typedef tigon_policy_loss_fwd_problem problem;

static double at(const problem *p, const float *from, int64_t i) { return tigon_load_f64(from, i, p->dtype); }
static void put(const problem *p, float *to, int64_t i, double value) {
  if (to) tigon_store_f64(to, i, p->dtype, value);
}
static double within(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
static double logistic(double x) {
  return x < 0 ? tigon_ref_exp(x) / (1 + tigon_ref_exp(x)) : 1 / (1 + tigon_ref_exp(-x));
}

static bool counts(const problem *p, int64_t t) {
  if (!p->mask.of.data) return true;
  const int64_t value = tigon_load_index(p->mask.of.data, t, p->mask.of.dtype);
  return value != p->mask.ignored && (p->mask.limit == 0 || (value >= 0 && value < p->mask.limit));
}
static double log_ratio(const problem *p, int64_t t) { return p->old ? at(p, p->logprob, t) - at(p, p->old, t) : 0; }
static double log_of(double c) { return log(within(c, 1e-8, exp(20))); }

typedef struct sequence {
  int64_t index, begin, end;
  double tokens; /* that count, or 1 */
  double weight, rho, w;
} sequence;

static double weight_of(const problem *p, double own, double all) {
  const bool of_tokens = p->kind == TIGON_POLICY_BNPO || p->kind == TIGON_POLICY_DAPO ||
                         p->kind == TIGON_POLICY_CISPO || p->kind == TIGON_POLICY_VESPO;
  double d = of_tokens ? all : (double)p->sequences;
  if (p->denominator) d = at(p, p->denominator, 0) < 1 ? 1 : at(p, p->denominator, 0);
  switch (p->kind) {
    case TIGON_POLICY_GRPO:
    case TIGON_POLICY_SAPO: return 1 / (own * d);
    case TIGON_POLICY_DR_GRPO: return 1 / (p->max_length * d);
    case TIGON_POLICY_LUSPO: return p->sequence_level ? 1 / d : own / (p->max_length * d);
    default: return 1 / d;
  }
}

static sequence sequence_at(const problem *p, int64_t s, double all) {
  const tigon_vector *of = &p->segments;
  sequence q = {.index = s,
                .begin = of->data ? tigon_load_index(of->data, s, of->dtype) : s * p->length,
                .end = of->data ? tigon_load_index(of->data, s + 1, of->dtype) : (s + 1) * p->length};
  double sum = 0;
  for (int64_t t = q.begin; t < q.end; ++t) {
    if (!counts(p, t)) continue;
    q.tokens += 1;
    sum += log_ratio(p, t);
    q.w += within(log_ratio(p, t), -20, 20);
    if (p->ratio && p->token_ratio) q.w += log_of(at(p, p->ratio, t));
  }
  if (p->ratio && !p->token_ratio) q.w += log_of(at(p, p->ratio, s));
  if (q.tokens == 0) q.tokens = 1;
  q.w = within(q.w, log(1e-8), 20);
  q.rho = tigon_ref_exp(sum / q.tokens);
  q.weight = weight_of(p, q.tokens, all);
  return q;
}

/* A token's loss, and its derivatives by its own l alone and by the log of its sequence's rho. */
typedef struct parts {
  double f, own, shared, k3, rho;
  bool low, high;
} parts;

/* -min(min(rho, delta) a, clip(rho) a), and its derivative by the log of rho. */
static double clip_loss(const problem *p, double rho, double a, double *slope) {
  const double low = (double)(1 - p->eps_low), high = (double)(1 + p->eps_high), delta = (double)p->delta;
  const double free = fmin(rho, delta) * a, clipped = within(rho, low, high) * a;
  const bool moves = free <= clipped ? rho <= delta : rho >= low && rho <= high;
  *slope = moves ? -rho * a : 0;
  if (isnan(rho * a)) *slope = rho * a;
  return isnan(rho) ? rho : free <= clipped ? -free : -clipped;
}

static parts token_at(const problem *p, const sequence *q, int64_t t) {
  const double l = at(p, p->logprob, t), a = at(p, p->advantage, p->token_advantage ? t : q->index);
  const double c = p->ratio ? at(p, p->ratio, p->token_ratio ? t : q->index) : 1;
  const double d = p->ref ? at(p, p->ref, t) - l : 0, high = (double)p->eps_high, beta = (double)p->kl_weight;
  const bool vespo = p->kind == TIGON_POLICY_VESPO, together = p->sequence_level && !vespo;
  parts made = {.k3 = expm1(d) - d, .rho = together ? q->rho : tigon_ref_exp(log_ratio(p, t))};
  const double rho = made.rho;
  double slope;
  switch (p->kind) {
    case TIGON_POLICY_CISPO:
      made.own = -c * (rho > high ? high : rho) * a;
      made.f = made.own * l;
      made.high = rho > high && a > 0;
      break;
    case TIGON_POLICY_VESPO: {
      const double k = (double)p->k[a >= 0], lambda = (double)p->lambda[a >= 0];
      made.own = -tigon_ref_exp(lambda + k * q->w - lambda * exp(q->w)) * a;
      made.f = made.own * l;
      break;
    }
    case TIGON_POLICY_SAPO: {
      const double tau = (double)p->tau[a > 0], s = logistic(tau * (rho - 1)), bend = s * logistic(-tau * (rho - 1));
      made.f = -4 / tau * s * a * c;
      slope = bend == 0 ? 0 : -4 * bend * rho * a * c;
      *(together ? &made.shared : &made.own) = slope;
      break;
    }
    default:
      made.f = c * clip_loss(p, rho, a, &slope);
      *(together ? &made.shared : &made.own) = c * slope;
      made.low = rho < (double)(1 - p->eps_low) && a < 0;
      made.high = rho > (double)(1 + p->eps_high) && a > 0;
  }
  if (beta == 0) return made;
  made.f += beta * made.k3 * (p->kl_bias_corrected ? rho : 1);
  if (!p->kl_bias_corrected)
    made.own += -beta * expm1(d);
  else if (!together)
    made.own += -beta * rho * d;
  else
    made.own += -beta * rho * expm1(d), made.shared += beta * rho * made.k3;
  return made;
}

typedef struct totals {
  double loss, k3, entropy, rho, low, high;
} totals;

static void run_sequence(const problem *p, int64_t s, double all, totals *sum) {
  const sequence q = sequence_at(p, s, all);
  const double upstream = p->dloss ? at(p, p->dloss, 0) : 1;
  double shared = 0;
  for (int64_t t = q.begin; t < q.end; ++t) {
    const parts made = counts(p, t) ? token_at(p, &q, t) : (parts){0};
    put(p, p->token_loss, t, made.f);
    shared += q.weight * made.shared;
    sum->loss += q.weight * made.f;
    sum->k3 += made.k3;
    sum->rho += made.rho;
    sum->low += made.low;
    sum->high += made.high;
    if (counts(p, t) && p->entropy) sum->entropy += at(p, p->entropy, t);
  }
  for (int64_t t = q.begin; t < q.end; ++t) {
    const bool here = counts(p, t);
    put(p, p->dlogprob, t, here ? upstream * (q.weight * token_at(p, &q, t).own + shared / q.tokens) : 0);
    put(p, p->dentropy, t, here ? upstream * -(double)p->entropy_weight / all : 0);
  }
}

tigon_status tigon_ref_policy_loss_fwd(tigon_queue *queue, const problem *p) {
  (void)queue;
  double all = 0;
  for (int64_t t = 0; t < p->tokens; ++t) all += counts(p, t);
  if (all == 0) all = 1;
  totals sum = {0};
  for (int64_t s = 0; s < p->sequences; ++s) run_sequence(p, s, all, &sum);
  if (p->entropy_weight != 0) sum.loss -= (double)p->entropy_weight * sum.entropy / all;
  put(p, p->loss, 0, sum.loss);
  put(p, p->kl, 0, sum.k3 / all);
  put(p, p->clip_low, 0, sum.low / all);
  put(p, p->clip_high, 0, sum.high / all);
  put(p, p->mean_entropy, 0, sum.entropy / all);
  put(p, p->mean_ratio, 0, sum.rho / all);
  return TIGON_OK;
}
