/* What of linear is no library's GEMM: a product for any operands, sums over rows, and roundings of f32 sums. */
#include "cuda/linear.h"
#include "cuda/kernel/element.cuh"
#include "cuda/kernel/team.cuh"
#include "slabs.h"

/* ---- the built-in product ---- */

/* tile[d][i] = element (first + i, k0 + d) of a matrix of `extent` rows and k columns, 0 outside. Neighbouring threads read
 * neighbouring elements, so the order depends on which index is the inner one in memory. */
__device__ static inline void load_tile(const cuda_matrix &x, bool inner_is_k, int64_t first, int64_t extent,
                                        int64_t k0, int64_t k, float (&tile)[GEMM_DEPTH][GEMM_TILE + 4]) {
#pragma unroll
  for (int e = 0; e < GEMM_TILE * GEMM_DEPTH / GEMM_THREADS; ++e) {
    const int at = e * GEMM_THREADS + (int)threadIdx.x;
    const int d = inner_is_k ? at % GEMM_DEPTH : at / GEMM_TILE, i = inner_is_k ? at / GEMM_DEPTH : at % GEMM_TILE;
    const int64_t row = first + i, col = k0 + d;
    const bool inside = row < extent && col < k;
    tile[d][i] = inside ? load_any(x.data, inner_is_k ? row * x.pitch + col : col * x.pitch + row, x.dtype) : 0;
  }
}

extern "C" __global__ void __launch_bounds__(GEMM_THREADS) linear_gemm(const __grid_constant__ cuda_gemm p) {
  __shared__ float as[GEMM_DEPTH][GEMM_TILE + 4], bs[GEMM_DEPTH][GEMM_TILE + 4];
  const int64_t tiles = (p.n + GEMM_TILE - 1) / GEMM_TILE;
  const int64_t m0 = blockIdx.x / tiles * GEMM_TILE, n0 = blockIdx.x % tiles * GEMM_TILE;
  const int i0 = (int)threadIdx.x / (GEMM_TILE / GEMM_SHARE) * GEMM_SHARE;
  const int j0 = (int)threadIdx.x % (GEMM_TILE / GEMM_SHARE) * GEMM_SHARE;
  float total[GEMM_SHARE][GEMM_SHARE] = {}, part[GEMM_SHARE][GEMM_SHARE] = {};
  for (int64_t k0 = 0; k0 < p.k; k0 += GEMM_DEPTH) {
    load_tile(p.a, !p.a.transposed, m0, p.m, k0, p.k, as);
    load_tile(p.b, p.b.transposed, n0, p.n, k0, p.k, bs);
    __syncthreads();
#pragma unroll
    for (int d = 0; d < GEMM_DEPTH; ++d) {
      float a[GEMM_SHARE], b[GEMM_SHARE];
#pragma unroll
      for (int i = 0; i < GEMM_SHARE; ++i) a[i] = as[d][i0 + i], b[i] = bs[d][j0 + i];
#pragma unroll
      for (int i = 0; i < GEMM_SHARE; ++i)
#pragma unroll
        for (int j = 0; j < GEMM_SHARE; ++j) part[i][j] = fmaf(a[i], b[j], part[i][j]);
    }
    __syncthreads();
    if ((k0 + GEMM_DEPTH) % GEMM_BLOCK_K != 0) continue;
#pragma unroll
    for (int i = 0; i < GEMM_SHARE; ++i)
#pragma unroll
      for (int j = 0; j < GEMM_SHARE; ++j) total[i][j] += part[i][j], part[i][j] = 0;
  }
#pragma unroll
  for (int i = 0; i < GEMM_SHARE; ++i)
#pragma unroll
    for (int j = 0; j < GEMM_SHARE; ++j) {
      const int64_t r = m0 + i0 + i, c = n0 + j0 + j;
      if (r >= p.m || c >= p.n) continue;
      float v = total[i][j] + part[i][j];
      if (p.bias) v += load_any(p.bias, c, p.bias_dtype);
      if (p.sums) v += p.sums[r * p.n + c];
      if (p.accumulate) v += load_any(p.c, r * p.c_pitch + c, p.c_dtype);
      store_any(p.c, r * p.c_pitch + c, p.c_dtype, v);
    }
}

/* ---- rounding ---- */

/* N elements of a row from c on: a pack's, aligned, or 1. */
template <class T, int N>
__device__ inline void round_some(const linear_round &p, const float *from, T *to, int64_t c) {
  float v[N];
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = 0;
  if (from) {
    if constexpr (N == 1) {
      v[0] = from[c];
    } else {
#pragma unroll
      for (int j = 0; j < N; j += 4) {
        const float4 some = *(const float4 *)(from + c + j);
        v[j] = some.x, v[j + 1] = some.y, v[j + 2] = some.z, v[j + 3] = some.w;
      }
    }
  }
  if (p.bias) {
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] += load_any(p.bias, c + j, p.bias_dtype);
  }
  if constexpr (N == 1) {
    if (p.accumulate) v[0] += to_f32(to[c]);
    to[c] = from_f32<T>(v[0]);
  } else {
    if (p.accumulate) {
      float old[N];
      unpack(load_pack(to + c), old);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] += old[j];
    }
    store_pack(to + c, packed<T>(v));
  }
}

template <class T, int N> __device__ inline void round_rows(const linear_round &p) {
  const int64_t each = (int64_t)ROUND_THREADS * ROUND_EACH * N, parts = (p.cols + each - 1) / each;
  const int64_t r = blockIdx.x / parts, first = blockIdx.x % parts * each;
  const float *from = p.from ? p.from + r * p.from_pitch : NULL;
  T *to = (T *)p.to + r * p.to_pitch;
#pragma unroll
  for (int k = 0; k < ROUND_EACH; ++k) {
    const int64_t c = first + ((int64_t)k * ROUND_THREADS + threadIdx.x) * N;
    if (c < p.cols) round_some<T, N>(p, from, to, c);
  }
}

KERNEL_BY_DTYPE(linear_round_wide, (ROUND_THREADS), (const __grid_constant__ linear_round p),
                round_rows<T, pack<T>::N>(p))
KERNEL_BY_DTYPE(linear_round_any, (ROUND_THREADS), (const __grid_constant__ linear_round p), round_rows<T, 1>(p))

/* ---- the bias' gradient ---- */

/* A block has one range of rows, and N columns a lane; T is dy's dtype. */
template <class T, int N> __device__ inline void bias_sums(const linear_bias_sums &p) {
  __shared__ float parts[BIAS_WARPS][WARP * N];
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  const int64_t panels = (p.cols + WARP * N - 1) / (WARP * N);
  const int64_t range = blockIdx.x / panels, first = blockIdx.x % panels * (WARP * N), c = first + lane * N;
  int64_t begin, end;
  tigon_range(p.rows, p.ranges, range, &begin, &end);
  float sum[N];
#pragma unroll
  for (int j = 0; j < N; ++j) sum[j] = 0;
  if (c < p.cols) {
    const T *at = (const T *)p.dy + c;
#pragma unroll 4
    for (int64_t r = begin + warp; r < end; r += BIAS_WARPS) {
      if constexpr (N == 1) {
        sum[0] += to_f32(at[r * p.pitch]);
      } else {
        float v[N];
        unpack(load_pack(at + r * p.pitch), v);
#pragma unroll
        for (int j = 0; j < N; ++j) sum[j] += v[j];
      }
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) parts[warp][lane * N + j] = sum[j];
  __syncthreads();
  for (int i = (int)threadIdx.x; i < WARP * N && first + i < p.cols; i += WARP * BIAS_WARPS) {
    float all = parts[0][i];
    for (int w = 1; w < BIAS_WARPS; ++w) all += parts[w][i];
    const int64_t column = first + i;
    if (range == 0 && p.sums) all += p.sums[column];
    if (p.ranges > 1) {
      p.slabs[range * p.cols + column] = all;
    } else {
      if (p.accumulate) all += load_any(p.to, column, p.dtype);
      store_any(p.to, column, p.dtype, all);
    }
  }
}

KERNEL_BY_DTYPE(linear_bias_wide, (WARP * BIAS_WARPS), (const __grid_constant__ linear_bias_sums p),
                bias_sums<T, pack<T>::N>(p))
KERNEL_BY_DTYPE(linear_bias_any, (WARP * BIAS_WARPS), (const __grid_constant__ linear_bias_sums p), bias_sums<T, 1>(p))
