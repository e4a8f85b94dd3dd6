/* vocab_parallel_cross_entropy's merge: a thread has a row, whose stats are 20 bytes a shard. */
#include "core/vocab_parallel_cross_entropy.h"
#include "cuda/vocab_parallel_cross_entropy.h"

extern "C" __global__ void __launch_bounds__(VOCAB_MERGE_THREADS)
    vocab_parallel_cross_entropy_merge(const __grid_constant__ tigon_vocab_parallel_cross_entropy_merge_problem m) {
  const int64_t step = (int64_t)gridDim.x * VOCAB_MERGE_THREADS;
  for (int64_t r = (int64_t)blockIdx.x * VOCAB_MERGE_THREADS + threadIdx.x; r < m.loss.space.rows; r += step)
    tigon_vocab_parallel_merge(&m, r);
}
