/* What preference_loss computes, with its error (number.h), for the checks of preference_loss and of a head that has it. */
#ifndef TIGON_CHECK_PREFERENCE_TERMS_H
#define TIGON_CHECK_PREFERENCE_TERMS_H

#include <math.h>

#include "check/internal.h"
#include "check/number.h"

typedef struct preference_option {
  tigon_preference_kind kind;
  tigon_dtype counts; /* TIGON_DTYPE_NONE: there are none */
  bool ref, shift, shift_of_each, denominator, nll, outputs;
  double beta, e, gamma, tau, desirable, undesirable, nll_weight;
} preference_option;

/* ---- the kinds, by the rewards a and b, as the kernels compute them ---- */

typedef struct terms {
  num loss, chosen, rejected;
} terms;

static inline terms of_difference(num loss, num slope) { return (terms){loss, slope, minus(slope)}; }

static inline terms sigmoid(const check *k, num h, double down, double up) {
  const num zero = {0}, loss = times(made(down, 4), soft(k, minus(h)));
  return of_difference(
      plus(loss, up != 0 ? times(made(up, 4 * fabs(up)), soft(k, h)) : zero),
      less(times(made(up, 4 * fabs(up)), logistic(k, h)), times(made(down, 4), logistic(k, minus(h)))));
}

static inline terms exo(const check *k, num h, double e) {
  const num log_e = made(log(e), 4 * fabs(log(e))), log_rest = made(log1p(-e), 4 * fabs(log1p(-e)));
  const num s = logistic(k, h), rest = logistic(k, minus(h));
  const num of_s = times(s, less(minus(soft(k, minus(h))), log_rest));
  return of_difference(plus(of_s, times(rest, less(minus(soft(k, h)), log_e))),
                       times(times(s, rest), less(h, less(log_rest, log_e))));
}

static inline terms discopop(const check *k, num h, double tau) {
  const num t = over(k, h, tau), m = logistic(k, t), rest = logistic(k, minus(t)), of_h = soft(k, minus(h));
  const num mixed = exponential(k, less(minus(h), soft(k, minus(t))));
  const num slope = less(minus(times(logistic(k, minus(h)), rest)), mixed);
  return of_difference(plus(times(of_h, rest), mixed),
                       plus(slope, over(k, times(rest, less(mixed, times(m, of_h))), tau)));
}

/* 1 - e^l of a mean l, and its log. */
static inline num rest_of(num l) { return made(-expm1(l.v), l.e * exp(l.v) + 4 * -expm1(l.v)); }
static inline num log_rest_of(num l) {
  const double q = -expm1(l.v);
  return made(log(q), l.e * exp(l.v) / q + 4 + 4 * fabs(log(q)));
}
static inline num over_num(const check *k, num a, num b) {
  const num by = over(k, a, b.v);
  return made(by.v, by.e + fabs(by.v) * b.e / b.v);
}

/* About o = 0 either way of the chosen derivative may be taken. */
static inline terms orpo(const check *k, num a, bool counts_a, num b, bool counts_b, double beta) {
  const num zero = {0}, odds_b = counts_b ? less(b, log_rest_of(b)) : zero;
  const num o = less(counts_a ? less(a, log_rest_of(a)) : zero, odds_b), wrong = logistic(k, minus(o));
  const num far = times(logistic(k, o), exponential(k, less(odds_b, a))), near = over_num(k, wrong, rest_of(a));
  num by_a = o.v > 0 ? far : near;
  if (fabs(o.v) < 1) by_a.e = fmax(far.e, near.e);
  return (terms){times(exactly(beta), soft(k, minus(o))), counts_a ? minus(by_a) : zero,
                 counts_b ? over_num(k, wrong, rest_of(b)) : zero};
}

static inline num half_of(num x) { return made(x.v / 2, x.e / 2); }
static inline num slope_of(const check *k, num x) { return times(logistic(k, x), logistic(k, minus(x))); }

static inline terms of_pair(const check *k, const preference_option *o, num a, num b, double shift) {
  const num h = less(less(a, b), exactly(o->gamma)), no = {0};
  const double e = o->e > 0 ? o->e : o->kind == TIGON_PREFERENCE_EXO_PAIR ? (double)1e-3f : 0;
  switch (o->kind) {
    case TIGON_PREFERENCE_HINGE: {
      const bool either = fabs(h.v - 1) <= h.e * 0x1p-24; /* side of the corner */
      const double slope = h.v >= 1 ? 0 : h.v < 1 ? -1 : h.v;
      return of_difference((num){h.v >= 1 ? 0 : 1 - h.v, h.e + fabs(1 - h.v)}, (num){slope, either ? 0x1p24 : 0});
    }
    case TIGON_PREFERENCE_IPO: {
      const num far = over(k, less(h, exactly(0.5)), o->beta);
      return of_difference(times(far, far), over(k, times(exactly(2), far), o->beta));
    }
    case TIGON_PREFERENCE_EXO_PAIR: return exo(k, h, e);
    case TIGON_PREFERENCE_NCA_PAIR:
      return (terms){plus(plus(soft(k, minus(a)), half_of(soft(k, a))), half_of(soft(k, b))),
                     less(half_of(logistic(k, a)), logistic(k, minus(a))), half_of(logistic(k, b))};
    case TIGON_PREFERENCE_ROBUST: return sigmoid(k, h, (1 - e) / (1 - 2 * e), -e / (1 - 2 * e));
    case TIGON_PREFERENCE_BCO_PAIR: {
      const num up = less(exactly(shift), a), down = less(b, exactly(shift));
      return (terms){plus(soft(k, up), soft(k, down)), minus(logistic(k, up)), logistic(k, down)};
    }
    case TIGON_PREFERENCE_SPPO_HARD: {
      const num up = over(k, less(a, exactly(0.5)), o->beta), down = over(k, plus(b, exactly(0.5)), o->beta);
      return (terms){plus(times(up, up), times(down, down)), over(k, times(exactly(2), up), o->beta),
                     over(k, times(exactly(2), down), o->beta)};
    }
    case TIGON_PREFERENCE_APO_ZERO:
      return (terms){plus(logistic(k, minus(a)), logistic(k, b)), minus(slope_of(k, a)), slope_of(k, b)};
    case TIGON_PREFERENCE_APO_DOWN:
      return (terms){plus(logistic(k, a), logistic(k, minus(h))), less(slope_of(k, a), slope_of(k, h)), slope_of(k, h)};
    case TIGON_PREFERENCE_DISCOPOP: return discopop(k, h, o->tau);
    case TIGON_PREFERENCE_SIGMOID: return sigmoid(k, h, 1 - e, e);
    default: return (terms){no, no, no};
  }
}

static inline terms of_one(const check *k, const preference_option *o, num l, double y, double shift) {
  const num no = {0}, weight = exactly(y > 0 ? o->desirable : o->undesirable), beta = exactly(o->beta);
  if (o->kind == TIGON_PREFERENCE_KTO) {
    const num x = times(times(exactly(y), beta), less(l, exactly(shift))), slope = slope_of(k, x);
    return (terms){times(weight, logistic(k, minus(x))), times(exactly(-y), times(weight, slope)), no};
  }
  const num x = times(exactly(y), less(times(beta, l), exactly(shift)));
  return (terms){times(weight, soft(k, minus(x))), times(exactly(-y), times(weight, logistic(k, minus(x)))), no};
}

/* ---- a call ---- */

typedef struct preference_call {
  check *k;
  preference_option o; /* with the numbers that 0 stands for, as f32 has them */
  int64_t items, sequences;
  tigon_preference_loss_fwd_args a;
  const num *logps;                                                /* instead of a's, which have no errors */
  const double *tokens;                                            /* instead of a's counts */
  double *loss, *pair_loss, *rewards, *dlogps, *accuracy, *margin; /* magnitudes */
  double *slope;                                                   /* [sequences] |dlogps|; may be NULL */
} preference_call;

static inline double f32_or(double given, double otherwise) { return (double)(float)(given != 0 ? given : otherwise); }
static inline bool of_pairs(const preference_call *c) { return c->o.kind < TIGON_PREFERENCE_KTO; }

typedef struct sequence {
  num l, reward;
  double count; /* 0: it has no token */
} sequence;

static inline sequence sequence_at(const preference_call *c, int64_t s) {
  sequence at = {.count = 1};
  if (c->o.counts) at.count = c->tokens ? c->tokens[s] : fmax(0, check_value(&c->a.counts, s));
  const num ref = exactly(c->o.ref ? check_value(&c->a.ref, s) : 0);
  const num logps = c->logps ? c->logps[s] : exactly(check_value(&c->a.logps, s));
  if (at.count > 0) at.l = over(c->k, less(logps, ref), at.count);
  at.reward = times(exactly(c->o.beta), at.l);
  return at;
}

static inline void bound_sequence(const preference_call *c, int64_t s, const sequence *at, num derivative, num scale) {
  c->rewards[s] = at->reward.e;
  if (at->count <= 0) return;
  const num slope = over(c->k, times(derivative, times(exactly(c->o.beta), scale)), at->count);
  c->dlogps[s] = slope.e;
  if (c->slope) c->slope[s] = fabs(slope.v);
}

/* Are two rewards so near that f32 may order them otherwise? */
static inline bool undecided(num a, num b) { return fabs(a.v - b.v) <= (a.e + b.e) * 0x1p-24; }

static inline void bound_preference(const preference_call *c) {
  const double d = c->o.denominator ? check_value(&c->a.denominator, 0) : (double)c->items;
  const num scale = over(c->k, exactly(1), d < 1 ? 1 : d), none = {0};
  double sides[2] = {0, 0}, of[2] = {0, 0};
  for (int64_t i = 0; i < c->items; ++i) {
    const sequence a = sequence_at(c, i), b = of_pairs(c) ? sequence_at(c, c->items + i) : (sequence){.l = none};
    const bool desirable = of_pairs(c) || check_value(&c->a.labels, i) != 0;
    const double shift = c->o.shift ? check_value(&c->a.shift, c->o.shift_of_each ? i : 0) : 0;
    const terms t = c->o.kind == TIGON_PREFERENCE_ORPO ? orpo(c->k, a.l, a.count > 0, b.l, b.count > 0, c->o.beta)
                    : of_pairs(c)                      ? of_pair(c->k, &c->o, a.reward, b.reward, shift)
                                                       : of_one(c->k, &c->o, a.l, desirable ? 1 : -1, shift);
    c->pair_loss[i] = t.loss.e;
    *c->loss += times(t.loss, scale).e;
    *c->accuracy += undecided(a.reward, b.reward) ? 0x1p24 / (double)c->items : 0;
    sides[desirable] += a.reward.e, ++of[desirable];
    bound_sequence(c, i, &a, t.chosen, scale);
    if (!of_pairs(c)) continue;
    sides[0] += b.reward.e, ++of[0];
    bound_sequence(c, c->items + i, &b, t.rejected, scale);
  }
  *c->margin = sides[0] / fmax(1, of[0]) + sides[1] / fmax(1, of[1]);
}

/* The numbers that 0 stands for, and the magnitudes. */
static inline void preference_begin(preference_call *c) {
  check *k = c->k;
  preference_option *o = &c->o;
  o->beta = f32_or(o->beta, 0.1), o->tau = f32_or(o->tau, 0.05), o->nll_weight = f32_or(o->nll_weight, 1);
  o->desirable = f32_or(o->desirable, 1), o->undesirable = f32_or(o->undesirable, 1);
  c->loss = check_doubles(k, 1), c->accuracy = check_doubles(k, 1), c->margin = check_doubles(k, 1);
  c->pair_loss = check_doubles(k, c->items), c->rewards = check_doubles(k, c->sequences);
  c->dlogps = check_doubles(k, c->sequences);
}

#endif
