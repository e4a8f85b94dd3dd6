/* The formulas of core/policy_loss.h for the tokens of a vector. */
#ifndef TIGON_CPU_POLICY_LOSS_H
#define TIGON_CPU_POLICY_LOSS_H

#include "core/policy_loss.h"
#include "cpu/kernels.h"
#include "cpu/simd_math.h"

typedef tigon_policy_loss_fwd_problem problem;

/* Kinds whose tokens have one formula. */
typedef enum family { FAMILY_CLIP, FAMILY_CISPO, FAMILY_SAPO, FAMILY_VESPO } family;
static inline family family_of(const problem *p) {
  switch (p->kind) {
    case TIGON_POLICY_CISPO: return FAMILY_CISPO;
    case TIGON_POLICY_SAPO: return FAMILY_SAPO;
    case TIGON_POLICY_VESPO: return FAMILY_VESPO;
    default: return FAMILY_CLIP;
  }
}

/* Is rho of the sequence? */
TIGON_INLINE bool of_sequences(family f, const problem *p) { return f != FAMILY_VESPO && p->sequence_level; }

TIGON_INLINE vf within(vf x, float low, float high) { return vf_min(vf_set(high), vf_max(vf_set(low), x)); }
TIGON_INLINE vf negative(vf x) { return vf_mul(x, vf_set(-1.0f)); }
/* x where m is true, else 0. */
TIGON_INLINE vf where(vm m, vf x) { return vf_select(m, x, vf_zero()); }

/* What a token has of its own. */
typedef struct token {
  vf l, a, c; /* c: 1 without a ratio */
  vf rho, d;
} token;

/* low and high: 1 where it is clipped there, else 0. */
typedef struct result {
  vf loss, own, shared, kl, low, high;
} result;

/* s(x) and its slope. */
TIGON_INLINE vf logistic(vf x, vf *slope) {
  const vf one = vf_set(1.0f), e = vf_exp_all(negative(vf_abs(x))), under = vf_add(one, e);
  const vf upper = vf_div(one, under), lower = vf_div(e, under);
  *slope = vf_mul(upper, lower);
  return vf_select(vf_lt(x, vf_zero()), lower, upper);
}

/* As tigon_policy_clip(): f is 0 - the smaller one. */
TIGON_INLINE void clip(const problem *p, token x, vf *f, vf *slope) {
  const float low = 1 - p->eps_low, high = 1 + p->eps_high;
  const vf delta = vf_set(p->delta), moved = negative(vf_mul(x.rho, x.a));
  const vf free = vf_mul(vf_select(vf_lt(delta, x.rho), delta, x.rho), x.a);
  const vf clipped = vf_mul(within(x.rho, low, high), x.a);
  const vm is_free = vf_le(free, clipped);
  const vf slope_of_clip = where(vf_le(vf_set(low), x.rho), where(vf_le(x.rho, vf_set(high)), moved));
  *f = negative(vf_select(is_free, free, clipped));
  *slope = vf_select(is_free, where(vf_le(x.rho, delta), moved), slope_of_clip);
  *slope = vf_select(vf_nan(*f), *f, *slope);
}

/* VESPO's weights of a sequence, for advantages below 0 and others. */
typedef struct vespo {
  float by[2];
} vespo;
static inline vespo vespo_of(const problem *p, float w) {
  vespo made;
  for (int i = 0; i < 2; ++i) made.by[i] = -expf(p->lambda[i] + p->k[i] * w - p->lambda[i] * expf(w));
  return made;
}

/* As tigon_policy_token_of(). */
TIGON_INLINE result loss_of(family f, const problem *p, const vespo *v, token x) {
  const vf zero = vf_zero(), one = vf_set(1.0f), grown = vf_expm1(x.d);
  result made = {.own = zero, .shared = zero, .kl = vf_sub(grown, x.d), .low = zero, .high = zero};
  vf slope;
  if (f == FAMILY_VESPO) {
    slope = vf_mul(vf_select(vf_le(zero, x.a), vf_set(v->by[1]), vf_set(v->by[0])), x.a);
    made.loss = vf_mul(slope, x.l);
  } else if (f == FAMILY_CISPO) {
    const vf most = vf_set(p->eps_high);
    const vm over = vf_lt(most, x.rho);
    slope = negative(vf_mul(vf_select(over, most, x.rho), x.a));
    made.loss = vf_mul(slope, x.l);
    made.high = where(over, where(vf_lt(zero, x.a), one));
  } else if (f == FAMILY_SAPO) {
    const vm gains = vf_lt(zero, x.a);
    const vf tau = vf_select(gains, vf_set(p->tau[1]), vf_set(p->tau[0]));
    const vf share = vf_select(gains, vf_set(-4 / p->tau[1]), vf_set(-4 / p->tau[0]));
    vf bend;
    made.loss = vf_mul(vf_mul(share, logistic(vf_mul(tau, vf_sub(x.rho, one)), &bend)), x.a);
    slope = vf_mul(vf_mul(vf_set(-4.0f), vf_mul(bend, x.rho)), x.a);
    slope = vf_select(vf_eq(bend, zero), zero, slope);
  } else {
    clip(p, x, &made.loss, &slope);
    made.low = where(vf_lt(x.rho, vf_set(1 - p->eps_low)), where(vf_lt(x.a, zero), one));
    made.high = where(vf_lt(vf_set(1 + p->eps_high), x.rho), where(vf_lt(zero, x.a), one));
  }
  if (p->ratio && f != FAMILY_VESPO) made.loss = vf_mul(made.loss, x.c), slope = vf_mul(slope, x.c);
  const bool together = of_sequences(f, p);
  *(together && f != FAMILY_CISPO ? &made.shared : &made.own) = slope;
  if (p->kl_weight == 0) return made;
  const vf weight = vf_set(p->kl_weight), by = p->kl_bias_corrected ? vf_mul(weight, x.rho) : weight;
  const vf of_kl = vf_mul(by, made.kl);
  made.loss = vf_add(made.loss, of_kl);
  made.own = vf_sub(made.own, vf_mul(by, p->kl_bias_corrected && !together ? x.d : grown));
  if (p->kl_bias_corrected && together) made.shared = vf_add(made.shared, of_kl);
  return made;
}

#endif
