/* vocab_parallel_cross_entropy: cross_entropy's kernels work on a shard, and a row of few numbers merges the shards. */
#include "core/vocab_parallel_cross_entropy.h"

#include "cpu/kernels.h"

typedef tigon_vocab_parallel_cross_entropy_merge_problem problem;

static int64_t row_bytes(const problem *m) { return m->shards * TIGON_VOCAB_STATS * (int64_t)sizeof(float); }

static void task(const void *argument, int64_t index) {
  const problem *m = argument;
  const int64_t rows = m->loss.space.rows;
  int64_t begin, end;
  tigon_range(rows, tigon_cpu_row_tasks(rows, row_bytes(m)), index, &begin, &end);
  for (int64_t r = begin; r < end; ++r) tigon_vocab_parallel_merge(m, r);
}

tigon_status TIGON_CPU(vocab_parallel_cross_entropy_stats)(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return TIGON_CPU(cross_entropy_fwd)(queue, p);
}

tigon_status TIGON_CPU(vocab_parallel_cross_entropy_merge)(tigon_queue *queue, const problem *m) {
  const tigon_cross_entropy_problem totals = tigon_vocab_parallel_totals(m);
  tigon_cpu_parallel(queue, tigon_cpu_row_tasks(m->loss.space.rows, row_bytes(m)), task, m);
  return TIGON_CPU(cross_entropy_fwd)(queue, &totals);
}

tigon_status TIGON_CPU(vocab_parallel_cross_entropy_bwd)(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return TIGON_CPU(cross_entropy_bwd)(queue, p);
}
