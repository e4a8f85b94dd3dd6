#ifndef TIGON_OPENCL_KERNEL_COLUMN_SUM_H
#define TIGON_OPENCL_KERNEL_COLUMN_SUM_H

#include "shared.h"

enum { COLUMN_SUM_ITEMS = 8 /* side by side; the others in a GPU's group have other slabs */ };

typedef struct column_sum_numbers {
  tigon_row_space space;
  cl_pitch to;
  int64_t count, step, cols;
  int32_t dtype, accumulate;
} column_sum_numbers;

#endif
