/* vocab_parallel_cross_entropy: cross_entropy's kernels work on a shard, and a row of few numbers merges the shards. */
#include "opencl/kernel/vocab_parallel_cross_entropy.h"

#include "core/context.h"
#include "core/vocab_parallel_cross_entropy.h"
#include "opencl/loss.h"
#include "opencl/tables.h"

tigon_status tigon_opencl_vocab_parallel_cross_entropy_stats(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return tigon_opencl_cross_entropy_fwd(queue, p);
}

tigon_status
tigon_opencl_vocab_parallel_cross_entropy_merge(tigon_queue *queue,
                                                const tigon_vocab_parallel_cross_entropy_merge_problem *m) {
  static const opencl_kernel kernel = {"vocab_parallel_cross_entropy", "vocab_parallel_cross_entropy_merge"};
  const tigon_cross_entropy_problem *p = &m->loss, totals = tigon_vocab_parallel_totals(m);
  const vocab_merge_numbers k = {.rows = p->space.rows,
                                 .shards = m->shards,
                                 .rank = m->rank,
                                 .rule = opencl_label_rule(p),
                                 .keep = opencl_pair(1 - (double)p->label_smoothing),
                                 .smoothing = opencl_pair((double)p->label_smoothing),
                                 .inverse_classes = opencl_pair(1 / (double)tigon_cross_entropy_smoothed(p)),
                                 .lse_square = p->lse_square_scale};
  TIGON_TRY(opencl_launch(queue, &kernel, TIGON_F32, opencl_item_shape(queue, k.rows),
                          OPENCL_MEMORY(m->stats, p->labels, p->token_loss, p->lse, p->z_loss, p->entropy), &k,
                          sizeof k));
  return tigon_opencl_cross_entropy_fwd(queue, &totals);
}

tigon_status tigon_opencl_vocab_parallel_cross_entropy_bwd(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return tigon_opencl_cross_entropy_bwd(queue, p);
}
