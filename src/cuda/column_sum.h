/* The second stage of a gradient over rows: slabs are added up in index order. */
#ifndef TIGON_CUDA_COLUMN_SUM_H
#define TIGON_CUDA_COLUMN_SUM_H

#include <stdbool.h>
#include <tigon/base.h>

enum { COLUMN_SUM_COLUMNS = 32, COLUMN_SUM_PARTS = 16, COLUMN_SUMS = 2 };

/* to[c] = (accumulate ? to[c] : 0) + sum over s < count of slabs[s * step + c], 0 <= c < cols; to NULL: not asked for. */
typedef struct column_sum_one {
  const float *slabs;
  void *to;
  tigon_dtype dtype;
  int64_t cols;
} column_sum_one;

typedef struct column_sums {
  column_sum_one of[COLUMN_SUMS];
  int64_t count, step;
  bool accumulate;
} column_sums;

#ifndef __CUDACC__
#include "cuda/cuda.h"
tigon_status cuda_column_sums(tigon_queue *queue, const column_sums *sums);
#endif

#endif
