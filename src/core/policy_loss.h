/* policy_loss in f32, of one token at a time, with sums of a sequence in f64: the CPU's and the GPU's kernels walk over these. A NaN
 * stays one. */
#ifndef TIGON_CORE_POLICY_LOSS_H
#define TIGON_CORE_POLICY_LOSS_H

#include "core/labels.h"
#include "core/policy_terms.h"

TIGON_SHARED bool tigon_policy_counts(const tigon_policy_loss_fwd_problem *p, int64_t t) {
  return tigon_token_counts(&p->mask, t);
}

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

/* Does a token's loss read the ratio of its sequence? */
TIGON_SHARED bool tigon_policy_adds_ratios(const tigon_policy_loss_fwd_problem *p) {
  return p->sequence_level || p->kind == TIGON_POLICY_VESPO;
}
/* Does its weight depend on how many tokens of its sequence count? */
TIGON_SHARED bool tigon_policy_adds_tokens(const tigon_policy_loss_fwd_problem *p) {
  return p->kind == TIGON_POLICY_GRPO || p->kind == TIGON_POLICY_SAPO || p->kind == TIGON_POLICY_LUSPO;
}

/* When all have been added. `counted` of all sequences, or 1. */
TIGON_SHARED void tigon_policy_weigh(const tigon_policy_loss_fwd_problem *p, int64_t s, int64_t counted,
                                     tigon_policy_sequence *at) {
  const double own = at->counted > 0 ? (double)at->counted : 1;
  double d = tigon_policy_of_tokens(p->kind) ? (double)counted : (double)p->sequences;
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
