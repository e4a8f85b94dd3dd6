/* What policy_loss computes, with its error (number.h), for the checks of policy_loss and of a head that has it. */
#ifndef TIGON_CHECK_POLICY_TERMS_H
#define TIGON_CHECK_POLICY_TERMS_H

#include <math.h>

#include "check/internal.h"
#include "check/number.h"

typedef struct policy_option {
  tigon_policy_kind kind;
  bool sequence, old, ref, entropy, mask, denominator, outputs;
  int advantage, ratio; /* 1: of tokens; ratio 2: of sequences */
  bool bias;
  double eps_low, eps_high, delta, kl, entropy_weight;
  int64_t max_length;
} policy_option;

typedef struct policy_call {
  check *k;
  policy_option o;
  int64_t sequences, tokens, length; /* length: of each sequence without segments */
  tigon_policy_loss_fwd_args a;
  const num *logprob, *entropy; /* instead of a's, which have no errors */
  const bool *counted;          /* instead of a's mask */
  double *loss, *token_loss, *dlogprob, *kl, *low, *high, *entropy_off, *ratio; /* magnitudes */
  double *slope; /* [tokens] |dlogprob| at most; may be NULL */
} policy_call;

typedef struct sequence {
  int64_t index, begin, end;
  double tokens;
  num rho, w, weight;
} sequence;

static inline bool counts(const policy_call *c, int64_t t) {
  if (c->counted) return c->counted[t];
  return !c->o.mask || check_value(&c->a.mask, t) != 0;
}
static inline num logprob_of(const policy_call *c, int64_t t) {
  return c->logprob ? c->logprob[t] : exactly(check_value(&c->a.logprob, t));
}

static inline num log_ratio(const policy_call *c, int64_t t) {
  if (!c->o.old) return exactly(0);
  return less(logprob_of(c, t), exactly(check_value(&c->a.old, t)));
}
static inline num within(num x, double low, double high) { return (num){fmin(fmax(x.v, low), high), x.e}; }
static inline num log_of(const policy_call *c, int64_t i) {
  const double v = log(fmin(fmax(check_value(&c->a.ratio, i), 1e-8), exp(20)));
  return made(v, (4 + check_calls(c->k, 1, 0)) * fabs(v) + 1); /* the limits are of f32 */
}

/* A sum in f64, which loses nothing. */
static inline num sum(num a, num b) { return made(a.v + b.v, a.e + b.e); }
/* An f64 as f32. */
static inline num stored(num x) { return made(x.v, x.e + fabs(x.v)); }

static inline double divisor(const policy_call *c, double own, double all) {
  const double width = c->o.max_length ? (double)c->o.max_length : (double)c->tokens / (double)c->sequences;
  const bool of_tokens = c->o.kind == TIGON_POLICY_BNPO || c->o.kind == TIGON_POLICY_DAPO ||
                         c->o.kind == TIGON_POLICY_CISPO || c->o.kind == TIGON_POLICY_VESPO;
  const double d = c->o.denominator ? fmax(1, check_value(&c->a.denominator, 0))
                   : of_tokens      ? all
                                    : (double)c->sequences;
  if (c->o.kind == TIGON_POLICY_GRPO || c->o.kind == TIGON_POLICY_SAPO) return d * own;
  if (c->o.kind == TIGON_POLICY_DR_GRPO) return d * width;
  return c->o.kind == TIGON_POLICY_LUSPO && !c->o.sequence ? d * width / own : d;
}

static inline sequence sequence_at(const policy_call *c, int64_t s, double all) {
  sequence q = {.index = s, .begin = s * c->length, .end = (s + 1) * c->length};
  if (c->a.segments.ndim) {
    q.begin = (int64_t)check_value(&c->a.segments, s);
    q.end = (int64_t)check_value(&c->a.segments, s + 1);
  }
  num of_rho = {0}, w = {0};
  for (int64_t t = q.begin; t < q.end; ++t) {
    if (!counts(c, t)) continue;
    q.tokens += 1;
    of_rho = sum(of_rho, log_ratio(c, t));
    w = sum(w, within(log_ratio(c, t), -20, 20));
    if (c->o.ratio == 1) w = sum(w, log_of(c, t));
  }
  if (c->o.ratio == 2) w = sum(w, log_of(c, s));
  if (q.tokens == 0) q.tokens = 1;
  q.rho = exponential(c->k, stored(made(of_rho.v / q.tokens, of_rho.e / q.tokens)));
  q.w = within(stored(w), log(1e-8), 20);
  q.weight = stored(exactly(1 / divisor(c, q.tokens, all)));
  return q;
}

/* A jump at `at` may be on either side of x. */
static inline bool jumps(num x, double at) { return fabs(x.v - at) <= x.e * 0x1p-24; }

typedef struct token {
  num loss, own, shared, k3, rho;
  bool low, high; /* may the metric be otherwise? */
} token;

static inline void clip_loss(const policy_call *c, num rho, num a, num *f, num *slope) {
  const double low = (double)(1 - (float)(c->o.eps_low > 0 ? c->o.eps_low : 0.2));
  const double high = (double)(1 + (float)(c->o.eps_high > 0 ? c->o.eps_high : 0.2));
  const double delta = c->o.delta > 0 ? (double)(float)c->o.delta : (double)INFINITY;
  const num free = times(within(rho, -(double)INFINITY, delta), a), clipped = times(within(rho, low, high), a);
  const bool is_free = free.v <= clipped.v;
  const bool moves = is_free ? rho.v <= delta : rho.v >= low && rho.v <= high;
  const num all = times(rho, a);
  *f = made(is_free ? -free.v : -clipped.v, fmax(free.e, clipped.e));
  *slope = moves ? minus(all) : exactly(0);
  if (jumps(rho, delta) || jumps(rho, low) || jumps(rho, high)) slope->e = 0x1p24 * fabs(all.v) + all.e;
}

static inline num expm1_of(const check *k, num x) {
  const double v = expm1(x.v);
  return made(v, (4 + check_calls(k, 1, 0)) * fabs(v) + x.e * exp(x.v) * growth(x));
}

static inline token token_at(const policy_call *c, const sequence *q, int64_t t) {
  const check *k = c->k;
  const policy_option *o = &c->o;
  const num l = logprob_of(c, t);
  const num a = exactly(check_value(&c->a.advantage, o->advantage ? t : q->index)), beta = exactly(o->kl);
  const num d = o->ref ? less(exactly(check_value(&c->a.ref, t)), l) : exactly(0), grown = expm1_of(k, d);
  const bool vespo = o->kind == TIGON_POLICY_VESPO, together = o->sequence && !vespo;
  token at = {.rho = together ? q->rho : o->old ? exponential(k, log_ratio(c, t)) : exactly(1), .k3 = less(grown, d)};
  const double high = o->eps_high > 0 ? o->eps_high : o->kind == TIGON_POLICY_CISPO ? 5 : 0.2;
  num slope = {0};
  if (vespo) {
    const double by[2] = {3, 2}; /* k; lambda is the other one */
    const num lambda = exactly(by[a.v < 0]), w = times(exactly(by[a.v >= 0]), q->w);
    slope = minus(times(exponential(k, less(plus(lambda, w), times(lambda, exponential(k, q->w)))), a));
    at.loss = times(slope, l);
  } else if (o->kind == TIGON_POLICY_CISPO) {
    slope = minus(times(within(at.rho, -(double)INFINITY, high), a));
    at.loss = times(slope, l);
    at.high = jumps(at.rho, high);
  } else if (o->kind == TIGON_POLICY_SAPO) {
    const double tau = a.v > 0 ? 1 : (double)1.05f;
    const num x = times(exactly(tau), less(at.rho, exactly(1)));
    const num bend = times(logistic(k, x), logistic(k, minus(x)));
    at.loss = times(times(over(k, exactly(-4), tau), logistic(k, x)), a);
    slope = bend.v == 0 ? exactly(0) : times(times(exactly(-4), times(bend, at.rho)), a);
  } else {
    clip_loss(c, at.rho, a, &at.loss, &slope);
    at.low = jumps(at.rho, (double)(1 - (float)(o->eps_low > 0 ? o->eps_low : 0.2)));
    at.high = jumps(at.rho, (double)(1 + (float)high));
  }
  if (o->ratio && !vespo) {
    const num by = exactly(check_value(&c->a.ratio, o->ratio == 1 ? t : q->index));
    at.loss = times(at.loss, by);
    slope = times(slope, by);
  }
  *(together && o->kind != TIGON_POLICY_CISPO ? &at.shared : &at.own) = slope;
  if (o->kl == 0) return at;
  const num by = o->bias ? times(beta, at.rho) : beta;
  at.loss = plus(at.loss, times(by, at.k3));
  at.own = less(at.own, times(by, o->bias && !together ? d : grown));
  if (o->bias && together) at.shared = plus(at.shared, times(by, at.k3));
  return at;
}

static inline void bound_policy(const policy_call *c) {
  double all = 0;
  for (int64_t t = 0; t < c->tokens; ++t) all += counts(c, t);
  if (all == 0) all = 1;
  for (int64_t s = 0; s < c->sequences; ++s) {
    const sequence q = sequence_at(c, s, all);
    num shared = {0};
    for (int64_t t = q.begin; t < q.end; ++t) {
      if (!counts(c, t)) continue;
      const token at = token_at(c, &q, t);
      c->token_loss[t] = at.loss.e;
      const num slope = times(q.weight, at.own);
      c->dlogprob[t] = slope.e;
      if (c->slope) c->slope[t] = fabs(slope.v);
      shared = sum(shared, at.shared);
      *c->loss += times(q.weight, at.loss).e;
      *c->kl += at.k3.e / all;
      *c->ratio += at.rho.e / all;
      *c->low += at.low ? 0x1p24 / all : 0;
      *c->high += at.high ? 0x1p24 / all : 0;
      if (c->entropy)
        *c->entropy_off += (fabs(c->entropy[t].v) + 0x1p20 * c->entropy[t].e) / all;
      else if (c->o.entropy)
        *c->entropy_off += fabs(check_value(&c->a.entropy, t)) / all;
    }
    const num each = times(q.weight, stored(made(shared.v / q.tokens, shared.e / q.tokens)));
    for (int64_t t = q.begin; c->o.sequence && t < q.end; ++t) /* both terms are rounded, and their sum is */
      if (counts(c, t)) {
        c->dlogprob[t] += each.e + 2 * fabs(each.v);
        if (c->slope) c->slope[t] += fabs(each.v);
      }
  }
  *c->loss += 0x1p-20 * fabs(c->o.entropy_weight) * *c->entropy_off;
}

#endif
