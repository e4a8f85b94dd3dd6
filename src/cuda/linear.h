/* What linear's launchers and kernels agree on. */
#ifndef TIGON_CUDA_LINEAR_H
#define TIGON_CUDA_LINEAR_H

#include <stdbool.h>
#include <tigon/base.h>

/* A matrix whose element (i, j) is at data[i * pitch + j]; transposed: at data[j * pitch + i]. */
typedef struct cuda_matrix {
  const void *data;
  tigon_dtype dtype;
  int64_t pitch;
  bool transposed;
} cuda_matrix;

/* c[m, n] = a[m, k] b[k, n] + bias[n] + sums[m, n] + (accumulate ? c : 0), summed in f32 and rounded once. */
typedef struct cuda_gemm {
  int64_t m, n, k;
  cuda_matrix a, b;
  void *c;
  tigon_dtype c_dtype;
  int64_t c_pitch;
  const void *bias; /* may be NULL */
  tigon_dtype bias_dtype;
  const float *sums; /* contiguous, may be NULL */
  bool accumulate;
} cuda_gemm;

/* The built-in product: a block has a tile of c, TILE x TILE, a thread SHARE x SHARE of it. The products of BLOCK_K columns are
 * summed by themselves, so that a long sum loses little. */
enum { GEMM_TILE = 64, GEMM_SHARE = 4, GEMM_DEPTH = 16, GEMM_BLOCK_K = 64 };
enum { GEMM_THREADS = GEMM_TILE / GEMM_SHARE * (GEMM_TILE / GEMM_SHARE) };

/* to[r, c] = from[r, c] + bias[c] + (accumulate ? to : 0), rounded once; `from` NULL: 0. `from` may be `to`. */
typedef struct linear_round {
  const float *from;
  void *to;
  const void *bias; /* may be NULL */
  tigon_dtype bias_dtype;
  int64_t rows, cols, from_pitch, to_pitch;
  bool accumulate;
} linear_round;

enum { ROUND_THREADS = 256, ROUND_EACH = 4 }; /* packs, or elements, of a thread, in one row */

/* to[c] = sum over r of dy[r, c] + sums[c] + (accumulate ? to[c] : 0). With more than one range of rows each makes a slab
 * [cols], the first of which has `sums` in it, and column_sum.h does the rest. */
typedef struct linear_bias_sums {
  const void *dy;
  int64_t rows, cols, pitch;
  int64_t ranges;
  float *slabs; /* [ranges, cols] */
  void *to;
  tigon_dtype dtype; /* dtype of `to` */
  const float *sums; /* may be NULL */
  bool accumulate;
} linear_bias_sums;

enum { BIAS_WARPS = 8 }; /* warps of a block; the lanes of a warp have columns, and the warps rows */

#endif
