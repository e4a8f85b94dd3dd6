#ifndef TIGON_OPENCL_KERNEL_ATTN_RES_H
#define TIGON_OPENCL_KERNEL_ATTN_RES_H

#include "shared.h"

enum {
  ATTN_RES_BLOCKS = 8, /* at most in a launch */
};

/* Blocks first to first + count - 1 of a launch. Words are two numbers of each token and block, [2, tokens, blocks]. */
typedef struct attn_res_numbers {
  tigon_row_space space;
  cl_pitch v, dv, h;
  int64_t cols, blocks, first, count;
  int64_t slabs;
  int32_t q_dtype, wn_dtype, dq_dtype, dwn_dtype;
  int32_t accumulate;
  float eps;
} attn_res_numbers;

#endif
