#ifndef TIGON_OPENCL_KERNEL_DYT_H
#define TIGON_OPENCL_KERNEL_DYT_H

#include "shared.h"

typedef struct dyt_numbers {
  tigon_row_space space;
  int64_t cols;
  cl_pitch dy, x, out;
  int32_t alpha_dtype, gamma_dtype, beta_dtype, unused;
} dyt_numbers;

#endif
