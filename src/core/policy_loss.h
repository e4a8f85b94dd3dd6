/* policy_loss in f32, of one token at a time, with sums of a sequence in f64: the CPU's and the GPU's kernels walk over these. A NaN
 * stays one. */
#ifndef TIGON_CORE_POLICY_LOSS_H
#define TIGON_CORE_POLICY_LOSS_H

#include "core/labels.h"
#include "core/logistic.h"

TIGON_SHARED bool tigon_policy_counts(const tigon_policy_loss_fwd_problem *p, int64_t t) {
  return tigon_token_counts(&p->mask, t);
}

/* x within low and high. */
TIGON_SHARED float tigon_policy_within(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

/* A sequence: its tokens, and what they add up to. */
typedef struct tigon_policy_sequence {
  int64_t begin, end, counted;
  double log_ratio;    /* sum of l - o; of VESPO w, before it is kept within its limits */
  double shared;       /* sum of what its tokens' losses gain with the log of the sequence's rho */
  float ratio;         /* ratio of the sequence; for VESPO w */
  float weight, slope; /* weight of its tokens' losses; slope of their gradients */
} tigon_policy_sequence;

TIGON_SHARED tigon_policy_sequence tigon_policy_sequence_at(const tigon_policy_loss_fwd_problem *p, int64_t s) {
  const tigon_span of = tigon_sequence_span(p->segments, p->length, p->sequences, p->tokens, s, p->error_flag);
  const tigon_policy_sequence at = {of.begin, of.end, 0, 0, 0, 1, 0, 0};
  return at;
}

/* log c, between log 10^-8 and 20. */
TIGON_SHARED float tigon_policy_log_ratio(float c) { return logf(tigon_policy_within(c, 1e-8f, 485165195.0f)); }

/* Adds a token that counts. */
TIGON_SHARED void tigon_policy_add(const tigon_policy_loss_fwd_problem *p, int64_t t, tigon_policy_sequence *to) {
  float x = p->old ? p->logprob[t] - p->old[t] : 0;
  ++to->counted;
  if (p->kind == TIGON_POLICY_VESPO) {
    x = tigon_policy_within(x, -20, 20);
    if (p->ratio && p->token_ratio) to->log_ratio += (double)tigon_policy_log_ratio(p->ratio[t]);
  }
  to->log_ratio += (double)x;
}

/* When all have been added. `counted` of all sequences, or 1. */
TIGON_SHARED void tigon_policy_weigh(const tigon_policy_loss_fwd_problem *p, int64_t s, int64_t counted,
                                     tigon_policy_sequence *at) {
  const double own = at->counted > 0 ? (double)at->counted : 1;
  const bool of_tokens = p->kind == TIGON_POLICY_BNPO || p->kind == TIGON_POLICY_DAPO ||
                         p->kind == TIGON_POLICY_CISPO || p->kind == TIGON_POLICY_VESPO;
  double d = of_tokens ? (double)counted : (double)p->sequences;
  if (p->denominator) d = *p->denominator < 1 ? 1 : (double)*p->denominator;
  if (p->kind == TIGON_POLICY_GRPO || p->kind == TIGON_POLICY_SAPO) d *= own;
  if (p->kind == TIGON_POLICY_DR_GRPO) d *= p->max_length;
  if (p->kind == TIGON_POLICY_LUSPO && !p->sequence_level) d *= p->max_length / own;
  at->weight = (float)(1 / d);
  at->slope = p->dloss ? at->weight * *p->dloss : at->weight;
  if (p->kind == TIGON_POLICY_VESPO) {
    if (p->ratio && !p->token_ratio) at->log_ratio += (double)tigon_policy_log_ratio(p->ratio[s]);
    at->ratio = tigon_policy_within((float)at->log_ratio, -18.420681f, 20);
  } else {
    at->ratio = expf((float)(at->log_ratio / own));
  }
}

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

TIGON_SHARED tigon_policy_token tigon_policy_token_at(const tigon_policy_loss_fwd_problem *p,
                                                      const tigon_policy_sequence *of, int64_t s, int64_t t) {
  const float l = p->logprob[t], a = p->advantage[p->token_advantage ? t : s], d = p->ref ? p->ref[t] - l : 0;
  const bool vespo = p->kind == TIGON_POLICY_VESPO, of_sequence = p->sequence_level && !vespo;
  const float rho = of_sequence ? of->ratio : p->old ? expf(l - p->old[t]) : 1, grown = expm1f(d);
  float f = 0, slope = 0; /* by the log of rho; of CISPO and VESPO by l */
  tigon_policy_token made = {0, 0, 0, grown - d, rho, false, false};
  if (vespo) {
    const float k = p->k[a >= 0], lambda = p->lambda[a >= 0];
    slope = -expf(lambda + k * of->ratio - lambda * expf(of->ratio)) * a;
    f = slope * l;
  } else if (p->kind == TIGON_POLICY_CISPO) {
    slope = -(rho > p->eps_high ? p->eps_high : rho) * a;
    f = slope * l;
    made.high = rho > p->eps_high && a > 0;
  } else if (p->kind == TIGON_POLICY_SAPO) {
    const float tau = p->tau[a > 0], x = tau * (rho - 1), bend = tigon_logistic_slope(x);
    f = -4 / tau * tigon_logistic(x) * a;
    slope = bend == 0 ? 0 : -4 * (bend * rho) * a;
  } else {
    tigon_policy_clip(p, rho, a, &f, &slope);
    made.low = rho < 1 - p->eps_low && a < 0;
    made.high = rho > 1 + p->eps_high && a > 0;
  }
  if (p->ratio && !vespo) {
    const float c = p->ratio[p->token_ratio ? t : s];
    f *= c;
    slope *= c;
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

/* ---- sums over all tokens ---- */

/* What dentropy is where a token counts; `counted` of all sequences, or 1. */
TIGON_SHARED float tigon_policy_entropy_slope(const tigon_policy_loss_fwd_problem *p, int64_t counted) {
  const float slope = (float)(-(double)p->entropy_weight / (double)counted);
  return p->dloss ? slope * *p->dloss : slope;
}

typedef struct tigon_policy_sums {
  double loss, kl, entropy, ratio;
  int64_t low, high;
} tigon_policy_sums;

/* Writes what is token t's own and adds the rest; `entropy_slope` is what dentropy is where a token counts. */
TIGON_SHARED void tigon_policy_visit(const tigon_policy_loss_fwd_problem *p, tigon_policy_sequence *of, int64_t s,
                                     int64_t t, float entropy_slope, tigon_policy_sums *sums) {
  const bool counts = tigon_policy_counts(p, t);
  tigon_policy_token made = {0, 0, 0, 0, 0, false, false};
  if (counts) made = tigon_policy_token_at(p, of, s, t);
  if (p->token_loss) p->token_loss[t] = made.loss;
  if (p->dlogprob) p->dlogprob[t] = counts ? of->slope * made.own : 0;
  if (p->dentropy) p->dentropy[t] = counts ? entropy_slope : 0;
  of->shared += (double)made.shared;
  sums->loss += (double)of->weight * (double)made.loss;
  sums->kl += (double)made.kl;
  sums->ratio += (double)made.ratio;
  if (counts && p->entropy) sums->entropy += (double)p->entropy[t];
  sums->low += made.low;
  sums->high += made.high;
}

/* Is there a second visit of tokens, for what each has of the sequence's rho? */
TIGON_SHARED bool tigon_policy_shares(const tigon_policy_loss_fwd_problem *p) {
  return p->dlogprob && p->sequence_level && p->kind != TIGON_POLICY_VESPO;
}
TIGON_SHARED void tigon_policy_share(const tigon_policy_loss_fwd_problem *p, const tigon_policy_sequence *of,
                                     int64_t t) {
  if (!tigon_policy_counts(p, t)) return;
  p->dlogprob[t] += of->slope * (float)(of->shared / (double)of->counted);
}

/* The numbers of the whole call. */
TIGON_SHARED void tigon_policy_finish(const tigon_policy_loss_fwd_problem *p, int64_t counted,
                                      const tigon_policy_sums *sums) {
  const double n = (double)counted;
  double loss = sums->loss;
  if (p->entropy_weight != 0) loss -= (double)p->entropy_weight * (sums->entropy / n);
  *p->loss = (float)loss;
  if (p->kl) *p->kl = (float)(sums->kl / n);
  if (p->clip_low) *p->clip_low = (float)((double)sums->low / n);
  if (p->clip_high) *p->clip_high = (float)((double)sums->high / n);
  if (p->mean_entropy) *p->mean_entropy = (float)(sums->entropy / n);
  if (p->mean_ratio) *p->mean_ratio = (float)(sums->ratio / n);
}

#endif
