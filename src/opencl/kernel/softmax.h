#ifndef TIGON_OPENCL_KERNEL_SOFTMAX_H
#define TIGON_OPENCL_KERNEL_SOFTMAX_H

#include "shared.h"

/* softmax and sparsemax. Forward: x and the mask in `in`, y in `out`. Backward: dy and y; dx. */
typedef struct softmax_numbers {
  tigon_row_space space;
  int64_t cols, tokens; /* row r is query r % tokens */
  cl_pitch in[2], out;
  int32_t mask_dtype, causal;
  float scale;
} softmax_numbers;

#endif
