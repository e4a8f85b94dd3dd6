/* Products of a tile: [MHC_SIDE, MHC_COLUMNS] sums over a long third dimension, of which MHC_DEPTH terms are in shared memory at once and each
 * warp has its share. f32 sums of 256 terms at most are added up over the warps, in order, in f64. */
#ifndef TIGON_CUDA_KERNEL_MHC_PRODUCT_CUH
#define TIGON_CUDA_KERNEL_MHC_PRODUCT_CUH

#include "cuda/kernel/element.cuh"
#include "cuda/kernel/team.cuh"
#include "cuda/mhc.h"

enum {
  MHC_WARPS = MHC_THREADS / WARP,
  MHC_EACH = MHC_DEPTH / MHC_WARPS,               /* terms of a warp at once */
  MHC_OUT = MHC_SIDE * MHC_COLUMNS / MHC_THREADS, /* sums of a thread in the end */
  MHC_TURNS = 256 / MHC_EACH,                     /* between two additions in f64 */
  MHC_TILE_ROWS = 4,                              /* sums of a lane */
  MHC_TILE_COLUMNS = 6,
};
static_assert(MHC_SIDE / MHC_TILE_ROWS * (MHC_COLUMNS / MHC_TILE_COLUMNS) == WARP, "a tile is a warp's");

struct mhc_space {
  __align__(16) float left[MHC_DEPTH][MHC_SIDE], right[MHC_DEPTH][MHC_COLUMNS];
  float part[MHC_WARPS][MHC_SIDE * MHC_COLUMNS];
};

/* The row and column of the r-th of a thread's sums. */
__device__ static inline int mhc_sum_row(int r) { return ((int)threadIdx.x + r * MHC_THREADS) / MHC_COLUMNS; }
__device__ static inline int mhc_sum_column(int r) { return ((int)threadIdx.x + r * MHC_THREADS) % MHC_COLUMNS; }

/* load(d) brings terms [d, d + MHC_DEPTH) of both sides into `s`, zeros past the last one. */
template <class F> __device__ inline void mhc_product(mhc_space &s, int64_t depth, double (&total)[MHC_OUT], F load) {
  const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP;
  const int row = lane / (MHC_COLUMNS / MHC_TILE_COLUMNS) * MHC_TILE_ROWS;
  const int column = lane % (MHC_COLUMNS / MHC_TILE_COLUMNS) * MHC_TILE_COLUMNS;
  float sum[MHC_TILE_ROWS][MHC_TILE_COLUMNS] = {{0}};
  int turn = 0;
  for (int64_t d = 0; d < depth; d += MHC_DEPTH) {
    __syncthreads();
    load(d);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < MHC_EACH; ++k) {
      const float4 l = *(const float4 *)&s.left[warp * MHC_EACH + k][row];
      const float left[MHC_TILE_ROWS] = {l.x, l.y, l.z, l.w};
      const float *right = &s.right[warp * MHC_EACH + k][column];
#pragma unroll
      for (int a = 0; a < MHC_TILE_ROWS; ++a)
#pragma unroll
        for (int b = 0; b < MHC_TILE_COLUMNS; ++b) sum[a][b] = fmaf(left[a], right[b], sum[a][b]);
    }
    if (++turn < MHC_TURNS && d + MHC_DEPTH < depth) continue;
    turn = 0;
#pragma unroll
    for (int a = 0; a < MHC_TILE_ROWS; ++a)
#pragma unroll
      for (int b = 0; b < MHC_TILE_COLUMNS; ++b) {
        s.part[warp][(row + a) * MHC_COLUMNS + column + b] = sum[a][b];
        sum[a][b] = 0;
      }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < MHC_OUT; ++r)
      for (int w = 0; w < MHC_WARPS; ++w) total[r] += (double)s.part[w][threadIdx.x + r * MHC_THREADS];
  }
}

/* A channel of all streams, counted on without a division. */
struct mhc_channel {
  int64_t cols, stream, c;
  __device__ mhc_channel(int64_t columns, int64_t k) : cols(columns), stream(k / columns), c(k % columns) {}
  __device__ void advance(int64_t by) {
    for (c += by; c >= cols; c -= cols) ++stream;
  }
};

#endif
