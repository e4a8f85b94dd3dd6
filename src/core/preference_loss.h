/* preference_loss in f32, of one pair or sequence at a time: the CPU's and the GPU's kernels walk over these. Every function takes any
 * number, and a NaN stays one. */
#ifndef TIGON_CORE_PREFERENCE_LOSS_H
#define TIGON_CORE_PREFERENCE_LOSS_H

#include "core/labels.h"
#include "core/logistic.h"

/* A loss, and its derivatives by the reward of the chosen sequence, or the only one, and of the rejected one. */
typedef struct tigon_preference {
  float loss, chosen, rejected;
} tigon_preference;

/* The result for a loss of the difference of rewards. */
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

/* ---- memory ---- */

TIGON_SHARED bool tigon_preference_of_pairs(const tigon_preference_loss_fwd_problem *p) {
  return p->kind < TIGON_PREFERENCE_KTO;
}

TIGON_SHARED int64_t tigon_preference_tokens(tigon_vector counts, int64_t i) {
  const int64_t count = tigon_vector_index(counts, i);
  return count > 0 ? count : 0;
}

TIGON_SHARED tigon_preference_sequence tigon_preference_sequence_at(const tigon_preference_loss_fwd_problem *p,
                                                                    int64_t s) {
  tigon_preference_sequence at = {0, 1, true};
  if (p->counts.data) {
    const int64_t tokens = tigon_preference_tokens(p->counts, s);
    at.counts = tokens > 0;
    at.count = (float)tokens;
  }
  if (at.counts) at.l = (p->logps[s] - (p->ref ? p->ref[s] : 0)) / at.count;
  return at;
}

/* What D divides by, inverted. */
TIGON_SHARED float tigon_preference_scale(const tigon_preference_loss_fwd_problem *p) {
  const float d = p->denominator ? *p->denominator : (float)p->items;
  return 1 / (d < 1 ? 1 : d);
}

/* ---- tokens ---- */

TIGON_SHARED tigon_span tigon_preference_span(const tigon_preference_loss_fwd_problem *p, int64_t s) {
  return tigon_sequence_span(p->segments, p->length, p->sequences, p->tokens, s, p->error_flag);
}

/* What the tokens of a sequence add up to. */
typedef struct tigon_preference_total {
  double logprob;
  int64_t count;
} tigon_preference_total;

TIGON_SHARED void tigon_preference_add(const tigon_preference_loss_fwd_problem *p, int64_t t,
                                       tigon_preference_total *to) {
  if (!tigon_token_counts(&p->mask, t)) return;
  to->logprob += (double)p->token_logprob[t];
  ++to->count;
}

TIGON_SHARED void tigon_preference_put_total(const tigon_preference_loss_fwd_problem *p, int64_t s,
                                             const tigon_preference_total *of) {
  p->sums[s] = (float)of->logprob;
  p->sums_of[s] = of->count;
}

/* ---- pairs and sequences ---- */

/* What is added up over pairs or sequences, and over those of the NLL. */
typedef struct tigon_preference_sums {
  double loss, reward[2], nll; /* reward: of the rejected, of the chosen */
  int64_t right, chosen;       /* items whose rewards are in order; chosen or desirable sequences */
  int64_t nll_tokens;
} tigon_preference_sums;

TIGON_SHARED void tigon_preference_put(const tigon_preference_loss_fwd_problem *p, int64_t s,
                                       const tigon_preference_sequence *of, float derivative, float scale) {
  if (p->rewards) p->rewards[s] = p->beta * of->l;
  if (p->dlogps) p->dlogps[s] = of->counts ? derivative * (p->beta * scale) / of->count : 0;
}

/* Writes what is item i's own, and adds the rest. */
TIGON_SHARED void tigon_preference_item(const tigon_preference_loss_fwd_problem *p, int64_t i, float scale,
                                        tigon_preference_sums *sums) {
  const float shift = p->shift ? p->shift[p->shifts > 1 ? i : 0] : 0;
  const tigon_preference_sequence first = tigon_preference_sequence_at(p, i);
  tigon_preference made;
  if (tigon_preference_of_pairs(p)) {
    const tigon_preference_sequence second = tigon_preference_sequence_at(p, p->items + i);
    made = tigon_preference_of_pair(p, &first, &second, shift);
    tigon_preference_put(p, p->items + i, &second, made.rejected, scale);
    sums->reward[0] += (double)(p->beta * second.l);
    sums->reward[1] += (double)(p->beta * first.l);
    sums->right += p->beta * first.l > p->beta * second.l;
    ++sums->chosen;
  } else {
    const bool desirable = tigon_vector_index(p->labels, i) != 0;
    const float reward = p->beta * first.l;
    made = tigon_preference_of_one(p, &first, desirable, shift);
    sums->reward[desirable] += (double)reward;
    sums->right += desirable ? reward > 0 : reward < 0;
    sums->chosen += desirable;
  }
  tigon_preference_put(p, i, &first, made.chosen, scale);
  if (p->pair_loss) p->pair_loss[i] = made.loss;
  sums->loss += (double)made.loss;
}

TIGON_SHARED void tigon_preference_nll_item(const tigon_preference_loss_fwd_problem *p, int64_t i,
                                            tigon_preference_sums *sums) {
  const int64_t tokens = tigon_preference_tokens(p->nll_counts, i);
  if (tokens > 0) sums->nll += (double)p->nll_logps[i];
  sums->nll_tokens += tokens;
}

/* nll_weight / max(1, the tokens) */
TIGON_SHARED double tigon_preference_nll_scale(const tigon_preference_loss_fwd_problem *p, int64_t tokens) {
  return (double)p->nll_weight / (double)(tokens > 0 ? tokens : 1);
}

TIGON_SHARED float tigon_preference_dnll(const tigon_preference_loss_fwd_problem *p, int64_t i, int64_t tokens) {
  return tigon_preference_tokens(p->nll_counts, i) > 0 ? -(float)tigon_preference_nll_scale(p, tokens) : 0;
}

/* The gradient of each token of sequence s that counts; `nll_tokens` of all sequences. */
TIGON_SHARED float tigon_preference_slope(const tigon_preference_loss_fwd_problem *p, int64_t s, int64_t nll_tokens) {
  float slope = p->dlogps[s];
  if (s < p->nll_sequences) slope += tigon_preference_dnll(p, s, nll_tokens);
  return p->dloss ? slope * *p->dloss : slope;
}

TIGON_SHARED void tigon_preference_return(const tigon_preference_loss_fwd_problem *p, int64_t t, float slope) {
  p->dtoken_logprob[t] = tigon_token_counts(&p->mask, t) ? slope : 0;
}

/* The numbers of the whole call. */
TIGON_SHARED void tigon_preference_finish(const tigon_preference_loss_fwd_problem *p, float scale,
                                          const tigon_preference_sums *sums) {
  const int64_t others = tigon_preference_of_pairs(p) ? sums->chosen : p->items - sums->chosen;
  const double chosen = sums->chosen > 0 ? sums->reward[1] / (double)sums->chosen : 0;
  const double rejected = others > 0 ? sums->reward[0] / (double)others : 0;
  double loss = sums->loss * (double)scale;
  if (p->nll_logps) loss -= tigon_preference_nll_scale(p, sums->nll_tokens) * sums->nll;
  *p->loss = (float)loss;
  if (p->accuracy) *p->accuracy = p->items > 0 ? (float)((double)sums->right / (double)p->items) : 0;
  if (p->margin) *p->margin = (float)(chosen - rejected);
}

#endif
