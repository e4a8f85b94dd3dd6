/* The second stage of a column accumulator: slabs summed in index order. */
#ifndef TIGON_CPU_COLUMN_SUM_H
#define TIGON_CPU_COLUMN_SUM_H

#include "cpu/kernels.h"

/* out[c] = (accumulate ? out[c] : 0) + sum over s < count of slabs[s * pitch + c]. */
void TIGON_CPU(column_sum)(const tigon_queue *queue, const float *slabs, int64_t count, int64_t pitch, int64_t cols,
                           void *out, tigon_dtype dtype, bool accumulate);

#endif
