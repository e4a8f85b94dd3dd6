/* The second stage of a gradient over rows. */
#include "cuda/kernel/column_sum.cuh"

#include "cuda/columns.h"

extern "C" __global__ void __launch_bounds__(COLUMN_SUM_COLUMNS *COLUMN_SUM_PARTS)
    column_sum(const __grid_constant__ column_sums all) {
  await_kernel();
  const column_sum_one &one = all.of[blockIdx.y];
  if (!one.to) return;
  column_sum_block(one.slabs, all.count, all.step, (int64_t)blockIdx.x * COLUMN_SUM_COLUMNS, one.cols, one.to, 0,
                   one.dtype, all.accumulate);
}

/* The same of a tigon_columns_problem: its vectors' of the slabs, its number's of the words. */
extern "C" __global__ void __launch_bounds__(COLUMN_SUM_COLUMNS *COLUMN_SUM_PARTS)
    columns_sums(const __grid_constant__ tigon_columns_problem p, const __grid_constant__ columns_walk walk) {
  await_kernel();
  const bool number = blockIdx.y == 2;
  const tigon_vector &to = number ? p.dnumber : p.dvector[blockIdx.y];
  if (!to.data || (number && blockIdx.x > 0)) return;
  column_sum_block(number ? walk.words : p.slabs + blockIdx.y * p.cols, number ? walk.blocks * walk.tiles : walk.slabs,
                   number ? 1 : 2 * p.cols, (int64_t)blockIdx.x * COLUMN_SUM_COLUMNS, number ? 1 : p.cols, to.data, 0,
                   to.dtype, p.accumulate);
}
