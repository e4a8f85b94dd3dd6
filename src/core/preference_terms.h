/* The formulas of preference_loss in f32, of one pair or sequence at a time, in C and in OpenCL C: who includes this has
 * tigon_preference_loss_fwd_problem, its kinds, and the functions of math.h. Every function takes any number, and a NaN
 * stays one. */
#ifndef TIGON_CORE_PREFERENCE_TERMS_H
#define TIGON_CORE_PREFERENCE_TERMS_H

#include "core/logistic.h"

/* A loss, and its derivatives by the reward of the chosen sequence, or the only one, and of the rejected one. */
typedef struct tigon_preference {
  float loss, chosen, rejected;
} tigon_preference;

/* For a loss of the difference of rewards. */
TIGON_SHARED tigon_preference tigon_preference_of_difference(float loss, float slope) {
  const tigon_preference made = {loss, slope, -slope};
  return made;
}

/* down * -log s(h) + up * -log s(-h) */
TIGON_SHARED tigon_preference tigon_preference_sigmoid(float h, float down, float up) {
  const float loss = down * tigon_softplus(-h) + (up != 0 ? up * tigon_softplus(h) : 0);
  return tigon_preference_of_difference(loss, up * tigon_logistic(h) - down * tigon_logistic(-h));
}

TIGON_SHARED tigon_preference tigon_preference_exo(float h, float e) {
  const float log_e = logf(e), log_rest = log1pf(-e), s = tigon_logistic(h), rest = tigon_logistic(-h);
  const float loss = s * (-tigon_softplus(-h) - log_rest) + rest * (-tigon_softplus(h) - log_e);
  return tigon_preference_of_difference(loss, s * rest * (h - (log_rest - log_e)));
}

/* e^-h m is one exponential, whose argument is below 0 for h < 0 and tau < 1. */
TIGON_SHARED tigon_preference tigon_preference_discopop(float h, float tau) {
  const float t = h / tau, m = tigon_logistic(t), rest = tigon_logistic(-t), soft = tigon_softplus(-h);
  const float mixed = expf(-h - tigon_softplus(-t));
  const float slope = -tigon_logistic(-h) * rest - mixed + rest * (mixed - m * soft) / tau;
  return tigon_preference_of_difference(soft * rest + mixed, slope);
}

/* log(1 - e^l) of l <= 0. */
TIGON_SHARED float tigon_log_of_rest(float l) {
  const float log_half = -0.6931472f;
  return l > log_half ? logf(-expm1f(l)) : log1pf(-expf(l));
}

/* One sequence: its log-probability less that of the reference model, a mean where there are counts. */
typedef struct tigon_preference_sequence {
  float l, count; /* tokens; 1 without counts */
  bool counts;    /* are there any tokens? */
} tigon_preference_sequence;

/* s(-o) / (1 - e^l) of a chosen l near 0 is 0 / 0; as s(o) e^(odds of the rejected - l) it is not. */
TIGON_SHARED tigon_preference tigon_preference_orpo(const tigon_preference_sequence *chosen,
                                                    const tigon_preference_sequence *rejected, float beta) {
  const float of_rejected = rejected->counts ? rejected->l - tigon_log_of_rest(rejected->l) : 0;
  const float o = (chosen->counts ? chosen->l - tigon_log_of_rest(chosen->l) : 0) - of_rejected;
  const float wrong = tigon_logistic(-o);
  const float by_chosen = o > 0 ? tigon_logistic(o) * expf(of_rejected - chosen->l) : wrong / -expm1f(chosen->l);
  const tigon_preference made = {beta * tigon_softplus(-o), chosen->counts ? -by_chosen : 0,
                                 rejected->counts ? wrong / -expm1f(rejected->l) : 0};
  return made;
}

TIGON_SHARED tigon_preference tigon_preference_of_pair(const tigon_preference_loss_fwd_problem *p,
                                                       const tigon_preference_sequence *chosen,
                                                       const tigon_preference_sequence *rejected, float shift) {
  const float a = p->beta * chosen->l, b = p->beta * rejected->l, h = a - b - p->gamma, e = p->label_smoothing;
  tigon_preference made = {0, 0, 0};
  switch (p->kind) {
    case TIGON_PREFERENCE_HINGE: return tigon_preference_of_difference(h >= 1 ? 0 : 1 - h, h >= 1 ? 0 : h < 1 ? -1 : h);
    case TIGON_PREFERENCE_IPO: {
      const float far = (h - 0.5f) / p->beta;
      return tigon_preference_of_difference(far * far, 2 * far / p->beta);
    }
    case TIGON_PREFERENCE_EXO_PAIR: return tigon_preference_exo(h, e);
    case TIGON_PREFERENCE_NCA_PAIR:
      made.loss = tigon_softplus(-a) + 0.5f * tigon_softplus(a) + 0.5f * tigon_softplus(b);
      made.chosen = 0.5f * tigon_logistic(a) - tigon_logistic(-a);
      made.rejected = 0.5f * tigon_logistic(b);
      return made;
    case TIGON_PREFERENCE_ROBUST: return tigon_preference_sigmoid(h, (1 - e) / (1 - 2 * e), -e / (1 - 2 * e));
    case TIGON_PREFERENCE_BCO_PAIR:
      made.loss = tigon_softplus(shift - a) + tigon_softplus(b - shift);
      made.chosen = -tigon_logistic(shift - a);
      made.rejected = tigon_logistic(b - shift);
      return made;
    case TIGON_PREFERENCE_SPPO_HARD: {
      const float up = (a - 0.5f) / p->beta, down = (b + 0.5f) / p->beta;
      made.loss = up * up + down * down;
      made.chosen = 2 * up / p->beta;
      made.rejected = 2 * down / p->beta;
      return made;
    }
    case TIGON_PREFERENCE_APO_ZERO:
      made.loss = tigon_logistic(-a) + tigon_logistic(b);
      made.chosen = -tigon_logistic_slope(a);
      made.rejected = tigon_logistic_slope(b);
      return made;
    case TIGON_PREFERENCE_APO_DOWN:
      made.loss = tigon_logistic(a) + tigon_logistic(-h);
      made.rejected = tigon_logistic_slope(h);
      made.chosen = tigon_logistic_slope(a) - made.rejected;
      return made;
    case TIGON_PREFERENCE_DISCOPOP: return tigon_preference_discopop(h, p->tau);
    case TIGON_PREFERENCE_ORPO: return tigon_preference_orpo(chosen, rejected, p->beta);
    case TIGON_PREFERENCE_SIGMOID:
    default: return tigon_preference_sigmoid(h, 1 - e, e);
  }
}

TIGON_SHARED tigon_preference tigon_preference_of_one(const tigon_preference_loss_fwd_problem *p,
                                                      const tigon_preference_sequence *one, bool desirable,
                                                      float shift) {
  const float y = desirable ? 1 : -1, weight = p->weight[desirable];
  tigon_preference made = {0, 0, 0};
  if (p->kind == TIGON_PREFERENCE_KTO) {
    const float x = y * p->beta * (one->l - shift);
    made.loss = weight * tigon_logistic(-x);
    made.chosen = -weight * y * tigon_logistic_slope(x);
  } else {
    const float x = y * (p->beta * one->l - shift);
    made.loss = weight * tigon_softplus(-x);
    made.chosen = -weight * y * tigon_logistic(-x);
  }
  return made;
}

TIGON_SHARED bool tigon_preference_of_pairs(const tigon_preference_loss_fwd_problem *p) {
  return p->kind < TIGON_PREFERENCE_KTO;
}

#endif
