/* The second stage of a gradient over rows: slabs are added up in index order. */
#ifndef TIGON_OPENCL_COLUMN_SUM_H
#define TIGON_OPENCL_COLUMN_SUM_H

#include "opencl/opencl.h"
#include "problem/columns.h"

/* to[c] = (accumulate ? to[c] : 0) + sum over s < count of slabs[s * step + c], 0 <= c < cols; without slabs count is 0. */
typedef struct opencl_column_sum {
  const float *slabs;
  int64_t count, step, cols;
  tigon_vector to;
  bool accumulate;
} opencl_column_sum;

/* Slabs of sums over rows, at most: more would be written and read again than rows have. opencl_row_shape() of as many has a work-item or group
 * for each. */
int64_t opencl_most_slabs(const tigon_queue *queue);
static inline int64_t opencl_slabs(const tigon_queue *queue, int64_t rows) {
  return tigon_slabs(rows, opencl_most_slabs(queue));
}

/* Nothing where `to` has no data. */
tigon_status opencl_sum_columns(tigon_queue *queue, const opencl_column_sum *sum);
/* The same for each row of `to`, which has to->data for sum->to's; row r has slabs r * count and on. */
tigon_status opencl_sum_columns_of_rows(tigon_queue *queue, const opencl_column_sum *sum, const tigon_row_space *space,
                                        const tigon_rows *to);

#endif
