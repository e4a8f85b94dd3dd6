/* The second stage of a gradient over rows. */
#include "cuda/kernel/column_sum.cuh"

extern "C" __global__ void __launch_bounds__(COLUMN_SUM_COLUMNS *COLUMN_SUM_PARTS)
    column_sum(const __grid_constant__ column_sums all) {
  column_sum_await();
  const column_sum_one &one = all.of[blockIdx.y];
  if (!one.to) return;
  column_sum_block(one.slabs, all.count, all.step, (int64_t)blockIdx.x * COLUMN_SUM_COLUMNS, all.cols, one.to, 0,
                   one.dtype, all.accumulate);
}
