/* Study: rows of softmax that fill the registers of a whole block, bf16. How they are held, backward and forward. Build
 * and run:
 *   nvcc -std=c++17 -O3 -arch=sm_90 -Isrc -Iinclude docs/lab/softmax/cuda_wide.cu -o wide && ./wide */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_pipeline.h>

#include "../rms_norm/cuda_time.cuh"
#include "cuda/kernel/chunk.cuh"
#include "cuda/kernel/cluster.cuh"

enum { N = 8 };
typedef chunk<bf16, N> piece;
extern __shared__ uint4 stages[];

struct problem {
  const bf16 *dy, *y;
  bf16 *dx;
  int rows, cols;
};

__device__ static inline float exp_below(float v) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v * 1.44269504f));
  return e;
}
struct op_largest {
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};
__device__ static inline float dot_of(const piece &dy, const piece &y) {
  float a[N], b[N], sum = 0;
  unpack_chunk<bf16, N>(dy, a), unpack_chunk<bf16, N>(y, b);
#pragma unroll
  for (int j = 0; j < N; ++j) sum = fmaf(a[j], b[j], sum);
  return sum;
}
__device__ static inline void store_slope(bf16 *dx, const piece &dy, const piece &y, float dot) {
  float a[N], b[N];
  unpack_chunk<bf16, N>(dy, a), unpack_chunk<bf16, N>(y, b);
#pragma unroll
  for (int j = 0; j < N; ++j) a[j] = b[j] * (a[j] - dot);
  store_chunk<bf16, N>(dx, pack_chunk<bf16, N>(a));
}

/* ---- backward ---- */

/* In registers; the blocks of a cluster share a row. */
template <int BLOCK, int PACKS, int MIN> __global__ void __launch_bounds__(BLOCK, MIN) bwd_held(problem p) {
  __shared__ team_space<1> space;
  __shared__ cluster_space<1> shared;
  const team t = team_of(BLOCK);
  const cluster cl = cluster_of_block();
  const int64_t at = (int64_t)(blockIdx.x / cl.size) * p.cols + (cl.rank * BLOCK + t.rank) * N;
  const int step = cl.size * BLOCK * N;
  piece g[PACKS], v[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k)
    g[k] = load_chunk<bf16, N>(p.dy + at + k * step), v[k] = load_chunk<bf16, N>(p.y + at + k * step);
  float dot[1] = {0};
#pragma unroll
  for (int k = 0; k < PACKS; ++k) dot[0] += dot_of(g[k], v[k]);
  team_all<op_sum>(t, space, 0, dot);
  cluster_all<op_sum>(cl, shared, 0, dot);
#pragma unroll
  for (int k = 0; k < PACKS; ++k) unpack_again(g[k]), unpack_again(v[k]);
#pragma unroll
  for (int k = 0; k < PACKS; ++k) store_slope(p.dx + at + k * step, g[k], v[k], dot[0]);
  cluster_end(cl);
}

/* dy in registers, y in shared memory. */
template <int BLOCK, int PACKS, int MIN> __global__ void __launch_bounds__(BLOCK, MIN) bwd_halves(problem p) {
  __shared__ team_space<1> space;
  const team t = team_of(BLOCK);
  const int64_t at = (int64_t)blockIdx.x * p.cols + t.rank * N;
  piece g[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) __pipeline_memcpy_async(stages + k * BLOCK + t.rank, p.y + at + k * BLOCK * N, 16);
  __pipeline_commit();
#pragma unroll
  for (int k = 0; k < PACKS; ++k) g[k] = load_chunk<bf16, N>(p.dy + at + k * BLOCK * N);
  __pipeline_wait_prior(0);
  float dot[1] = {0};
#pragma unroll
  for (int k = 0; k < PACKS; ++k) dot[0] += dot_of(g[k], piece{stages[k * BLOCK + t.rank]});
  team_all<op_sum>(t, space, 0, dot);
#pragma unroll
  for (int k = 0; k < PACKS; ++k) unpack_again(g[k]);
#pragma unroll
  for (int k = 0; k < PACKS; ++k)
    store_slope(p.dx + at + k * BLOCK * N, g[k], piece{stages[k * BLOCK + t.rank]}, dot[0]);
}

/* Read twice. */
template <int BLOCK, int MIN> __global__ void __launch_bounds__(BLOCK, MIN) bwd_walked(problem p) {
  __shared__ team_space<1> space;
  const team t = team_of(BLOCK);
  const int64_t at = (int64_t)blockIdx.x * p.cols;
  float dot[1] = {0};
#pragma unroll 4
  for (int c = t.rank * N; c < p.cols; c += BLOCK * N)
    dot[0] += dot_of(load_chunk<bf16, N>(p.dy + at + c), load_chunk<bf16, N>(p.y + at + c));
  team_all<op_sum>(t, space, 0, dot);
#pragma unroll 4
  for (int c = t.rank * N; c < p.cols; c += BLOCK * N)
    store_slope(p.dx + at + c, load_chunk<bf16, N>(p.dy + at + c), load_chunk<bf16, N>(p.y + at + c), dot[0]);
}

/* In registers, with the next row of the block on its way into shared memory, every thread its own packs. */
template <int BLOCK, int PACKS> __global__ void __launch_bounds__(BLOCK) bwd_ahead(problem p) {
  __shared__ team_space<1> space;
  const team t = team_of(BLOCK);
  uint4 *own = stages + t.rank;
  auto fetch = [&](int r) {
    const int64_t at = (int64_t)r * p.cols + t.rank * N;
#pragma unroll
    for (int k = 0; r < p.rows && k < PACKS; ++k) {
      __pipeline_memcpy_async(own + 2 * k * BLOCK, p.dy + at + k * BLOCK * N, 16);
      __pipeline_memcpy_async(own + (2 * k + 1) * BLOCK, p.y + at + k * BLOCK * N, 16);
    }
    __pipeline_commit();
  };
  fetch(blockIdx.x);
  for (int r = blockIdx.x, turn = 0; r < p.rows; r += gridDim.x, turn ^= 1) {
    __pipeline_wait_prior(0);
    piece g[PACKS], v[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) g[k].bits = own[2 * k * BLOCK], v[k].bits = own[(2 * k + 1) * BLOCK];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) unpack_again(g[k]), unpack_again(v[k]);
    fetch(r + gridDim.x);
    float dot[1] = {0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) dot[0] += dot_of(g[k], v[k]);
    team_all<op_sum>(t, space, turn, dot);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) unpack_again(g[k]), unpack_again(v[k]);
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      store_slope(p.dx + (int64_t)r * p.cols + (k * BLOCK + t.rank) * N, g[k], v[k], dot[0]);
  }
}

/* ---- forward: dx = softmax(y) ---- */

/* Of a thread's pieces in registers: the largest, the sum, the store. ONCE: exponents stay in registers, in f32. */
template <int PACKS, bool ONCE>
__device__ static inline void softmax_of(piece (&x)[PACKS], const team &t, team_space<1> &largest, team_space<1> &sums,
                                         int turn, bf16 *y) {
  float z[PACKS][N], of[1] = {-INFINITY};
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    unpack_chunk<bf16, N>(x[k], z[k]);
#pragma unroll
    for (int j = 0; j < N; ++j) of[0] = fmaxf(of[0], z[k][j]);
  }
  team_all<op_largest>(t, largest, turn, of);
  const float base = of[0];
  of[0] = 0;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    if (!ONCE) unpack_again(x[k]), unpack_chunk<bf16, N>(x[k], z[k]);
#pragma unroll
    for (int j = 0; j < N; ++j) of[0] += z[k][j] = exp_below(z[k][j] - base);
  }
  team_all<op_sum>(t, sums, turn, of);
  const float factor = 1.0f / of[0];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    if (!ONCE) unpack_again(x[k]), unpack_chunk<bf16, N>(x[k], z[k]);
#pragma unroll
    for (int j = 0; j < N; ++j) z[k][j] = factor * (ONCE ? z[k][j] : exp_below(z[k][j] - base));
    store_chunk<bf16, N>(y + k * t.threads * N, pack_chunk<bf16, N>(z[k]));
  }
}

template <int BLOCK, int PACKS, int MIN, bool ONCE> __global__ void __launch_bounds__(BLOCK, MIN) fwd_held(problem p) {
  __shared__ team_space<1> largest, sums;
  const team t = team_of(BLOCK);
  const int64_t at = (int64_t)blockIdx.x * p.cols + t.rank * N;
  piece x[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) x[k] = load_chunk<bf16, N>(p.y + at + k * BLOCK * N);
  softmax_of<PACKS, ONCE>(x, t, largest, sums, 0, p.dx + at);
}

/* As softmax_fwd_walk: the largest and the sum online, the exponents twice. */
template <int BLOCK, int MIN> __global__ void __launch_bounds__(BLOCK, MIN) fwd_walked(problem p) {
  __shared__ team_space<1> space;
  const team t = team_of(BLOCK);
  const int64_t at = (int64_t)blockIdx.x * p.cols;
  float most = -INFINITY, sum = 0, z[N];
#pragma unroll 4
  for (int c = t.rank * N; c < p.cols; c += BLOCK * N) {
    unpack_chunk<bf16, N>(load_chunk<bf16, N>(p.y + at + c), z);
    float here = most;
#pragma unroll
    for (int j = 0; j < N; ++j) here = fmaxf(here, z[j]);
    sum *= exp_below(most - here);
#pragma unroll
    for (int j = 0; j < N; ++j) sum += exp_below(z[j] - here);
    most = here;
  }
  float of[1] = {most};
  team_all<op_largest>(t, space, 0, of);
  const float base = of[0];
  of[0] = sum * exp_below(most - base);
  team_all<op_sum>(t, space, 1, of);
  const float factor = 1.0f / of[0];
#pragma unroll 4
  for (int c = t.rank * N; c < p.cols; c += BLOCK * N) {
    unpack_chunk<bf16, N>(load_chunk<bf16, N>(p.y + at + c), z);
#pragma unroll
    for (int j = 0; j < N; ++j) z[j] = factor * exp_below(z[j] - base);
    store_chunk<bf16, N>(p.dx + at + c, pack_chunk<bf16, N>(z));
  }
}

/* As bwd_ahead, STAGES rows ahead. */
template <int BLOCK, int PACKS, int STAGES, bool ONCE> __global__ void __launch_bounds__(BLOCK) fwd_ahead(problem p) {
  __shared__ team_space<1> largest, sums;
  const team t = team_of(BLOCK);
  int ahead = blockIdx.x, stage = 0;
  auto fetch = [&]() {
    const int64_t at = (int64_t)ahead * p.cols + t.rank * N;
#pragma unroll
    for (int k = 0; ahead < p.rows && k < PACKS; ++k)
      __pipeline_memcpy_async(stages + (stage * PACKS + k) * BLOCK + t.rank, p.y + at + k * BLOCK * N, 16);
    __pipeline_commit();
    ahead += gridDim.x;
    stage = stage + 1 == STAGES ? 0 : stage + 1;
  };
  for (int i = 0; i < STAGES; ++i) fetch();
  for (int r = blockIdx.x, turn = 0; r < p.rows; r += gridDim.x, turn ^= 1) {
    __pipeline_wait_prior(STAGES - 1);
    piece x[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) x[k].bits = stages[(stage * PACKS + k) * BLOCK + t.rank];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) unpack_again(x[k]);
    fetch();
    softmax_of<PACKS, ONCE>(x, t, largest, sums, turn, p.dx + (int64_t)r * p.cols + t.rank * N);
  }
}

/* ---- measuring ---- */

static problem made(int rows, int cols) {
  const size_t n = (size_t)rows * cols;
  std::vector<bf16> some(1 << 20);
  for (bf16 &v : some) v = __float2bfloat16(4.0f * rand() / RAND_MAX - 2);
  bf16 *memory[3];
  for (int i = 0; i < 3; ++i) {
    cudaMalloc(&memory[i], n * sizeof(bf16));
    for (size_t at = 0; at < n; at += some.size() - 4096 * i)
      cudaMemcpy(memory[i] + at, some.data(), std::min(some.size() - 4096 * i, n - at) * sizeof(bf16),
                 cudaMemcpyHostToDevice);
  }
  return problem{memory[0], memory[1], memory[2], rows, cols};
}

static void print(const char *name, const problem &p, void (*kernel)(problem), int block, int cluster, int rows_kib,
                  bool persistent, std::vector<unsigned short> &right) {
  int cores, on_core = 0;
  cudaFuncAttributes has;
  cudaDeviceGetAttribute(&cores, cudaDevAttrMultiProcessorCount, 0);
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, rows_kib << 10);
  cudaFuncGetAttributes(&has, kernel);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&on_core, kernel, block, rows_kib << 10);
  cudaLaunchAttribute attribute = {cudaLaunchAttributeClusterDimension};
  attribute.val.clusterDim.x = cluster, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(persistent ? cores * on_core : p.rows * cluster), config.blockDim = dim3(block);
  config.dynamicSmemBytes = rows_kib << 10, config.attrs = &attribute, config.numAttrs = cluster > 1;
  const size_t n = (size_t)p.cols * 64;
  std::vector<unsigned short> got(n);
  cudaMemset(p.dx, 0xff, (size_t)p.rows * p.cols * sizeof(bf16));
  const double us = cold_us([&]() { cudaLaunchKernelEx(&config, kernel, p); });
  cudaMemcpy(got.data(), p.dx + (size_t)p.rows * p.cols - n, n * sizeof(bf16), cudaMemcpyDeviceToHost);
  if (right.empty()) right = got;
  int most = 0; /* in steps of bf16, signs apart */
  for (size_t i = 0; i < n; ++i) most = std::max(most, abs((int)(short)got[i] - (int)(short)right[i]));
  printf("%-44s %3d registers, %d blocks an SM  %7.1f us  %s, off by %d\n", name, has.numRegs, on_core, us,
         cudaGetErrorString(cudaGetLastError()), most);
}

int main() {
  cudaDeviceProp device;
  cudaGetDeviceProperties(&device, 0);
  const int rows = 8192, cols = 32768;
  const problem p = made(rows, cols);
  std::vector<unsigned short> bwd, fwd;
  printf("%s, %d x %d\n", device.name, rows, cols);
  const size_t bytes = (size_t)rows * cols * sizeof(bf16);
  printf("copy: %.1f us\n", cold_us([&]() { cudaMemcpyAsync(p.dx, p.dy, bytes, cudaMemcpyDeviceToDevice); }));
#define PRINT(which, kernel, ...) print(#kernel, p, kernel, __VA_ARGS__, which)
  PRINT(bwd, (bwd_held<1024, 4, 1>), 1024, 1, 0, false);
  PRINT(bwd, (bwd_held<512, 4, 2>), 512, 2, 0, false);
  PRINT(bwd, (bwd_held<256, 4, 4>), 256, 4, 0, false);
  PRINT(bwd, (bwd_halves<512, 8, 2>), 512, 1, 64, false);
  PRINT(bwd, (bwd_halves<1024, 4, 1>), 1024, 1, 64, false);
  PRINT(bwd, (bwd_walked<512, 2>), 512, 1, 0, false);
  PRINT(bwd, (bwd_walked<1024, 1>), 1024, 1, 0, false);
  PRINT(bwd, (bwd_walked<512, 3>), 512, 1, 0, false);
  PRINT(bwd, (bwd_ahead<1024, 4>), 1024, 1, 128, true);
  PRINT(bwd, (bwd_ahead<512, 8>), 512, 1, 128, true);
  PRINT(fwd, (fwd_walked<512, 2>), 512, 1, 0, false);
  PRINT(fwd, (fwd_walked<512, 3>), 512, 1, 0, false);
  PRINT(fwd, (fwd_held<1024, 4, 1, true>), 1024, 1, 0, false);
  PRINT(fwd, (fwd_held<1024, 4, 2, false>), 1024, 1, 0, false);
  PRINT(fwd, (fwd_held<512, 8, 2, false>), 512, 1, 0, false);
  PRINT(fwd, (fwd_ahead<1024, 4, 1, true>), 1024, 1, 64, true);
  PRINT(fwd, (fwd_ahead<1024, 4, 2, true>), 1024, 1, 128, true);
  PRINT(fwd, (fwd_ahead<1024, 4, 3, true>), 1024, 1, 192, true);
  PRINT(fwd, (fwd_ahead<512, 8, 1, false>), 512, 1, 64, true);
  return cudaGetLastError() != cudaSuccess;
}
