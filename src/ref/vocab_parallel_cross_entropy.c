/* vocab_parallel_cross_entropy, as its header writes it. stats and bwd are cross_entropy's of a shard. */
#include "core/labels.h"
#include "ref/ref.h"

typedef tigon_vocab_parallel_cross_entropy_merge_problem problem;

/* A column of the row's stats of a shard. */
enum { M, S, W, U, Y };
static double stat(const problem *m, int64_t shard, int64_t r, int column) {
  return tigon_load_f64(m->stats, (shard * m->loss.space.rows + r) * TIGON_VOCAB_STATS + column, m->dtype);
}

static void put(const problem *m, void *out, int64_t r, double value) {
  if (out) tigon_store_f64(out, r, m->dtype, value);
}

static double largest_of(const problem *m, int64_t r) {
  double largest = -INFINITY;
  for (int64_t k = 0; k < m->shards; ++k) {
    const double of_shard = stat(m, k, r, M);
    if (isnan(of_shard)) return of_shard;
    largest = fmax(largest, of_shard);
  }
  return largest;
}

static void merge_row(const problem *m, int64_t r) {
  const tigon_cross_entropy_problem *p = &m->loss;
  const double largest = largest_of(m, r), smoothing = (double)p->label_smoothing;
  double sum = 0, moment = 0, label_logit = 0, logits = 0;
  for (int64_t k = 0; k < m->shards; ++k) {
    const double above = stat(m, k, r, M) - largest, factor = above < 0 ? tigon_ref_exp(above) : 1;
    if (stat(m, k, r, M) > -INFINITY) sum += stat(m, k, r, S) * factor;
    if (factor > 0) moment += (stat(m, k, r, W) + stat(m, k, r, S) * above) * factor;
    label_logit += stat(m, k, r, Y);
    if (m->rank < 0 || m->rank == k) logits += stat(m, k, r, U);
  }
  const bool finite = isfinite(largest);
  const double lse = finite ? largest + log(sum) : largest;
  double loss = 0, z_loss = 0, entropy = 0;
  bool out_of_range;
  if (tigon_cross_entropy_label(p, r, &out_of_range) >= 0) {
    z_loss = p->lse_square_scale != 0 ? (double)p->lse_square_scale * lse * lse : 0;
    loss = (1 - smoothing) * (lse - label_logit) + z_loss;
    if (smoothing != 0) loss += smoothing * (lse - logits / (double)tigon_cross_entropy_smoothed(p));
    entropy = finite ? log(sum) - moment / sum : NAN;
  }
  put(m, p->token_loss, r, loss);
  put(m, p->lse, r, lse);
  put(m, p->z_loss, r, z_loss);
  put(m, p->entropy, r, entropy);
}

tigon_status tigon_ref_vocab_parallel_cross_entropy_merge(tigon_queue *queue, const problem *m) {
  tigon_cross_entropy_problem totals = m->loss;
  for (int64_t r = 0; r < m->loss.space.rows; ++r) merge_row(m, r);
  totals.parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_REDUCE;
  return tigon_ref_cross_entropy_fwd(queue, &totals);
}

tigon_status tigon_ref_vocab_parallel_cross_entropy_stats(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return tigon_ref_cross_entropy_fwd(queue, p);
}

tigon_status tigon_ref_vocab_parallel_cross_entropy_bwd(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return tigon_ref_cross_entropy_bwd(queue, p);
}
