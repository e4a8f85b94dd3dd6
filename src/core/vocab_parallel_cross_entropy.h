/* How a row's stats of all shards are merged, in f64: the CPU's and the GPU's kernel call it for each row. Inf - Inf is NaN here,
 * as the operator's header wants it. */
#ifndef TIGON_CORE_VOCAB_PARALLEL_CROSS_ENTROPY_H
#define TIGON_CORE_VOCAB_PARALLEL_CROSS_ENTROPY_H

#include <math.h>

#include "core/labels.h"

/* e^d of a difference that is not above 0. */
TIGON_SHARED double tigon_vocab_parallel_factor(double d) { return d < -700 ? 0 : exp(d); }

TIGON_SHARED void tigon_vocab_parallel_merge(const tigon_vocab_parallel_cross_entropy_merge_problem *m, int64_t r) {
  const tigon_cross_entropy_problem *p = &m->loss;
  const int64_t step = p->space.rows * TIGON_VOCAB_STATS;
  const float *first = m->stats + r * TIGON_VOCAB_STATS;
  double largest = -INFINITY, sum = 0, moment = 0, all = 0, label_logit = 0;
  for (int64_t k = 0; k < m->shards; ++k) {
    const double of_shard = (double)first[k * step];
    if (!(of_shard <= largest)) largest = of_shard != of_shard || largest != largest ? (double)NAN : of_shard;
    if (m->rank < 0 || m->rank == k) all += (double)first[k * step + 3];
    label_logit += (double)first[k * step + 4];
  }
  const bool finite = isfinite(largest);
  for (int64_t k = 0; finite && k < m->shards; ++k) {
    const float *stats = first + k * step;
    if (stats[0] == -INFINITY) continue;
    const double shift = (double)stats[0] - largest, factor = tigon_vocab_parallel_factor(shift);
    sum += (double)stats[1] * factor;
    moment += ((double)stats[2] + (double)stats[1] * shift) * factor;
  }
  const double log_sum = log(sum), lse = finite ? largest + log_sum : largest;
  bool out_of_range;
  const bool counts = tigon_cross_entropy_label(p, r, &out_of_range) >= 0;
  double loss = 0, z_loss = 0, entropy = 0;
  if (counts) {
    const double smoothing = (double)p->label_smoothing;
    /* Without the detour over lse, whose digits a large logit takes. */
    const double from = finite ? log_sum : 0;
    loss = (1 - smoothing) * (largest - label_logit + from);
    if (smoothing != 0) loss += smoothing * (largest - all / (double)tigon_cross_entropy_smoothed(p) + from);
    if (p->lse_square_scale != 0) z_loss = (double)p->lse_square_scale * lse * lse;
    loss += z_loss;
    entropy = finite ? log_sum - moment / sum : (double)NAN;
  }
  p->token_loss[r] = (float)loss;
  if (p->lse) p->lse[r] = (float)lse;
  if (p->z_loss) p->z_loss[r] = (float)z_loss;
  if (p->entropy) p->entropy[r] = (float)entropy;
}

/* What is left of merge for cross_entropy's slot. */
TIGON_SHARED tigon_cross_entropy_problem
tigon_vocab_parallel_totals(const tigon_vocab_parallel_cross_entropy_merge_problem *m) {
  tigon_cross_entropy_problem p = m->loss;
  p.parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_REDUCE;
  return p;
}

#endif
