#ifndef TIGON_OPENCL_KERNEL_POLY_NORM_H
#define TIGON_OPENCL_KERNEL_POLY_NORM_H

#include "shared.h"

enum { POLY = 3 /* powers, the highest first */, POLY_SUMS = POLY + 1 /* dw and db have */ };

typedef struct poly_numbers {
  tigon_row_space space;
  int64_t cols;
  cl_pitch dy, x, out;
  int32_t w_dtype, b_dtype;
  float eps;
  int32_t unused;
} poly_numbers;

#endif
