/* vocab_parallel_cross_entropy: cross_entropy's kernels work on a shard, and one of few numbers merges the shards. */
#include "cuda/vocab_parallel_cross_entropy.h"

#include "core/vocab_parallel_cross_entropy.h"
#include "cuda/kernels.h"

enum { MOST_BLOCKS = 1 << 20 };

tigon_status tigon_cuda_vocab_parallel_cross_entropy_stats(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return tigon_cuda_cross_entropy_fwd(queue, p);
}

tigon_status tigon_cuda_vocab_parallel_cross_entropy_merge(tigon_queue *queue,
                                                           const tigon_vocab_parallel_cross_entropy_merge_problem *m) {
  static cuda_kernel kernel = CUDA_KERNEL(vocab_parallel_cross_entropy, vocab_parallel_cross_entropy_merge);
  const int64_t blocks = cuda_ceil_div(m->loss.space.rows, VOCAB_MERGE_THREADS);
  const cuda_shape shape = {.blocks = blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS, .threads = VOCAB_MERGE_THREADS};
  const tigon_cross_entropy_problem totals = tigon_vocab_parallel_totals(m);
  const tigon_status status = cuda_launch(queue, &kernel, shape, CUDA_ARGUMENTS((void *)m));
  return status != TIGON_OK ? status : tigon_cuda_cross_entropy_fwd(queue, &totals);
}

tigon_status tigon_cuda_vocab_parallel_cross_entropy_bwd(tigon_queue *queue, const tigon_cross_entropy_problem *p) {
  return tigon_cuda_cross_entropy_bwd(queue, p);
}
