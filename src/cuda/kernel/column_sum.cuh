/* The second stage of a gradient over rows, as part of a kernel. */
#ifndef TIGON_CUDA_KERNEL_COLUMN_SUM_CUH
#define TIGON_CUDA_KERNEL_COLUMN_SUM_CUH

#include "cuda/column_sum.h"
#include "cuda/kernel/element.cuh"
#include "cuda/kernel/overlap.cuh"

/* Calls put(c, sum over s < count of slabs[s * step + c]) for 0 <= c < cols. A block has COLUMNS columns from `first` on. The
 * PARTS threads of a column sum the slabs part by part, and the parts are added in order. */
template <int COLUMNS, class F>
__device__ inline void column_sum_each(const float *slabs, int64_t count, int64_t step, int64_t first, int64_t cols,
                                       F put) {
  enum { PARTS = COLUMN_SUM_PARTS * COLUMN_SUM_COLUMNS / COLUMNS };
  __shared__ float parts[PARTS][COLUMNS];
  const int column = threadIdx.x % COLUMNS, part = threadIdx.x / COLUMNS;
  const int64_t c = first + column;
  float sum = 0;
  if (c < cols)
#pragma unroll 8
    for (int64_t s = part; s < count; s += PARTS) sum += slabs[s * step + c];
  __syncthreads(); /* a block may come here again */
  parts[part][column] = sum;
  __syncthreads();
  if (part > 0 || c >= cols) return;
  for (int i = 1; i < PARTS; ++i) sum += parts[i][column];
  put(c, sum);
}

/* to[offset + c] = (accumulate ? itself : 0) + that sum. */
template <int COLUMNS>
__device__ inline void column_sum_columns(const float *slabs, int64_t count, int64_t step, int64_t first, int64_t cols,
                                          void *to, int64_t offset, tigon_dtype dtype, bool accumulate) {
  column_sum_each<COLUMNS>(slabs, count, step, first, cols, [&](int64_t c, float sum) {
    if (accumulate) sum += load_any(to, offset + c, dtype);
    store_any(to, offset + c, dtype, sum);
  });
}

/* The same by a block of COLUMN_SUM_COLUMNS columns; few columns have more threads each. */
__device__ static inline void column_sum_block(const float *slabs, int64_t count, int64_t step, int64_t first,
                                               int64_t cols, void *to, int64_t offset, tigon_dtype dtype,
                                               bool accumulate) {
  if (cols - first > 4)
    column_sum_columns<COLUMN_SUM_COLUMNS>(slabs, count, step, first, cols, to, offset, dtype, accumulate);
  else
    column_sum_columns<4>(slabs, count, step, first, cols, to, offset, dtype, accumulate);
}

#endif
