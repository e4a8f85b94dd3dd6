/* The formulas of policy_loss in f32, of one token at a time, in C and in OpenCL C: who includes this has
 * tigon_policy_loss_fwd_problem, its kinds, and the functions of math.h. A NaN stays one. */
#ifndef TIGON_CORE_POLICY_TERMS_H
#define TIGON_CORE_POLICY_TERMS_H

#include "core/logistic.h"

/* x within low and high. */
TIGON_SHARED float tigon_policy_within(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* Is a loss of this kind divided by the number of all tokens that count, and not by that of sequences? */
TIGON_SHARED bool tigon_policy_of_tokens(int kind) {
  return kind == TIGON_POLICY_BNPO || kind == TIGON_POLICY_DAPO || kind == TIGON_POLICY_CISPO ||
         kind == TIGON_POLICY_VESPO;
}

/* log c, between log 10^-8 and 20. */
TIGON_SHARED float tigon_policy_log_ratio(float c) { return logf(tigon_policy_within(c, 1e-8f, 485165195.0f)); }

/* A token's numbers: those that a call has not are not read. */
typedef struct tigon_policy_values {
  float logprob, advantage, old, ref, ratio;
  bool has_old, has_ref, has_ratio;
} tigon_policy_values;

/* A token's loss; what it gains with the token's own l, and with the log of its sequence's rho. */
typedef struct tigon_policy_token {
  float loss, own, shared;
  float kl, ratio;
  bool low, high; /* is it clipped there? */
} tigon_policy_token;

/* -min(min(rho, delta) a, clip(rho) a) */
TIGON_SHARED void tigon_policy_clip(const tigon_policy_loss_fwd_problem *p, float rho, float a, float *f,
                                    float *slope) {
  const float low = 1 - p->eps_low, high = 1 + p->eps_high;
  const float free = (rho > p->delta ? p->delta : rho) * a, clipped = tigon_policy_within(rho, low, high) * a;
  const bool is_free = free <= clipped;
  const bool moves = is_free ? rho <= p->delta : rho >= low && rho <= high;
  *f = is_free ? -free : -clipped;
  *slope = moves ? -rho * a : *f != *f ? *f : 0;
}

TIGON_SHARED tigon_policy_token tigon_policy_token_of(const tigon_policy_loss_fwd_problem *p,
                                                      const tigon_policy_values *x, float shared_rho) {
  const float l = x->logprob, a = x->advantage, d = x->has_ref ? x->ref - l : 0;
  const bool vespo = p->kind == TIGON_POLICY_VESPO, of_sequence = p->sequence_level && !vespo;
  const float rho = of_sequence ? shared_rho : x->has_old ? expf(l - x->old) : 1, grown = expm1f(d);
  float f = 0, slope = 0; /* by the log of rho; of CISPO and VESPO by l */
  tigon_policy_token made = {0, 0, 0, grown - d, rho, false, false};
  if (vespo) {
    const float k = a >= 0 ? p->k[1] : p->k[0], lambda = a >= 0 ? p->lambda[1] : p->lambda[0];
    slope = -expf(lambda + k * shared_rho - lambda * expf(shared_rho)) * a;
    f = slope * l;
  } else if (p->kind == TIGON_POLICY_CISPO) {
    slope = -(rho > p->eps_high ? p->eps_high : rho) * a;
    f = slope * l;
    made.high = rho > p->eps_high && a > 0;
  } else if (p->kind == TIGON_POLICY_SAPO) {
    const float tau = a > 0 ? p->tau[1] : p->tau[0], u = tau * (rho - 1), bend = tigon_logistic_slope(u);
    f = -4 / tau * tigon_logistic(u) * a;
    slope = bend == 0 ? 0 : -4 * (bend * rho) * a;
  } else {
    tigon_policy_clip(p, rho, a, &f, &slope);
    made.low = rho < 1 - p->eps_low && a < 0;
    made.high = rho > 1 + p->eps_high && a > 0;
  }
  if (x->has_ratio && !vespo) {
    f *= x->ratio;
    slope *= x->ratio;
  }
  made.loss = f;
  if (of_sequence && p->kind != TIGON_POLICY_CISPO)
    made.shared = slope;
  else
    made.own = slope;
  if (p->kl_weight != 0) {
    const float by = p->kl_bias_corrected ? p->kl_weight * rho : p->kl_weight;
    made.loss += by * made.kl;
    made.own -= by * (p->kl_bias_corrected && !of_sequence ? d : grown);
    if (p->kl_bias_corrected && of_sequence) made.shared += by * made.kl;
  }
  return made;
}

#endif
