#ifndef TIGON_OPENCL_KERNEL_GEMM_H
#define TIGON_OPENCL_KERNEL_GEMM_H

#include "shared.h"

/* A tile of a product is TILE x TILE. A work-item of a CPU has one; elsewhere GROUP work-items share one, SHARE x SHARE elements each, and
 * DEPTH terms at a time are in local memory. SUM terms are summed by themselves, so that a long sum loses little. */
enum { GEMM_TILE = 64, GEMM_SUM = 64, GEMM_DEPTH = 16, GEMM_SHARE = 4, GEMM_GROUP = 256 };

/* A matrix whose element (i, j) lies at i * pitch + j; transposed: at j * pitch + i. */
typedef struct gemm_matrix {
  int64_t pitch;
  int32_t dtype, transposed;
} gemm_matrix;

/* c[m, n] = a[m, k] b[k, n] + bias[n] + sums[m, n] + (accumulate ? c : 0), summed in f32 and rounded once. */
typedef struct gemm_numbers {
  int64_t m, n, k, c_pitch;
  gemm_matrix a, b;
  int32_t c_dtype, bias_dtype, accumulate, unused;
} gemm_numbers;

enum { BIAS_COLUMNS = 64, BIAS_GROUP = 256 }; /* a group's sums over rows; its work-items */

/* to[c] = sum over r of dy[r, c] + sums[c] + (accumulate ? to[c] : 0). */
typedef struct bias_numbers {
  int64_t rows, cols, pitch;
  int32_t dy_dtype, dtype, accumulate, unused;
} bias_numbers;

#endif
