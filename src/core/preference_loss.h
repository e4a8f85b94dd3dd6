/* preference_loss in f32, of one pair or sequence at a time: the CPU's and the GPU's kernels walk over these. Every function takes any
 * number, and a NaN stays one. */
#ifndef TIGON_CORE_PREFERENCE_LOSS_H
#define TIGON_CORE_PREFERENCE_LOSS_H

#include "core/labels.h"
#include "core/preference_terms.h"

/* ---- memory ---- */

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
  double loss, reward[2]; /* reward: of the rejected, of the chosen */
  int64_t right, chosen;  /* items whose rewards are in order; chosen or desirable sequences */
  double nll, nll_tokens; /* f64 because counts are the caller's, of any size */
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
  sums->nll_tokens += (double)tokens;
}

/* nll_weight / max(1, the tokens) */
TIGON_SHARED double tigon_preference_nll_scale(const tigon_preference_loss_fwd_problem *p, double tokens) {
  return (double)p->nll_weight / (tokens > 0 ? tokens : 1);
}

TIGON_SHARED float tigon_preference_dnll(const tigon_preference_loss_fwd_problem *p, int64_t i, double tokens) {
  return tigon_preference_tokens(p->nll_counts, i) > 0 ? -(float)tigon_preference_nll_scale(p, tokens) : 0;
}

/* The gradient of each token of sequence s that counts; `nll_tokens` of all sequences. */
TIGON_SHARED float tigon_preference_slope(const tigon_preference_loss_fwd_problem *p, int64_t s, double nll_tokens) {
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
