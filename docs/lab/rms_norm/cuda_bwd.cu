/* Study: rms_norm backward with dw in bf16 (llama casting): how many threads, packs and rows ahead. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_bwd.cu -o cuda_bwd && ./cuda_bwd */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_time.cuh"

#include <cuda_pipeline.h>

#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/element.cuh"
#include "plan/plan.h"

extern __shared__ uint4 stages[];

struct problem {
  const bf16 *dy, *x, *w;
  bf16 *dx;
  const float *rstd;
  float *slabs;
  int rows, cols, team, ranges;
};

template <int BLOCK, int PACKS, int STAGES, int MIN, bool CLUSTER>
__global__ void __launch_bounds__(BLOCK, MIN) rows_bwd(const __grid_constant__ problem p) {
  constexpr int N = 8, STREAM = PACKS * BLOCK;
  __shared__ team_space<1> space;
  __shared__ cluster_space<1> shared;
  const team t = team_of(p.team);
  const cluster cl = CLUSTER ? cluster_of_block() : cluster{0, 1};
  const int first = cl.rank * t.threads * PACKS * N, range = blockIdx.x / cl.size;
  int64_t begin, end;
  tigon_plan_range(p.rows, p.ranges, range, &begin, &end);
  float dw[PACKS * N] = {0};
  pack<bf16> w[PACKS];
  bool mine[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    const int c = first + (k * t.threads + t.rank) * N;
    mine[k] = c < p.cols;
    w[k] = mine[k] ? load_pack(p.w + c) : zero_pack<bf16>();
  }
  const int own = first + t.rank * N;
  int ahead = (int)begin + t.index;
  int stage_ahead = 0;
  auto fetch = [&]() {
    if (ahead < end) {
      uint4 *stage = stages + stage_ahead * 2 * STREAM + threadIdx.x;
      const int64_t at = (int64_t)ahead * p.cols + own;
#pragma unroll
      for (int k = 0; k < PACKS; ++k)
        if (mine[k]) {
          __pipeline_memcpy_async(stage + k * BLOCK, p.dy + at + k * t.threads * N, 16);
          __pipeline_memcpy_async(stage + STREAM + k * BLOCK, p.x + at + k * t.threads * N, 16);
        }
    }
    __pipeline_commit();
    ahead += t.count;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < STAGES - 1; ++i) fetch();
  int turn = 0, stage_now = 0;
  for (int r = (int)begin + t.index; r < end; r += t.count) {
    fetch();
    const float rstd = __ldg(p.rstd + r);
    __pipeline_wait_prior(STAGES - 1);
    const uint4 *stage = stages + stage_now * 2 * STREAM + threadIdx.x;
    stage_now = stage_now + 1 == STAGES ? 0 : stage_now + 1;
    float g[PACKS * N], xhat[PACKS * N], dot[1] = {0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      float a[N], b[N], f[N];
      const pack<bf16> dy = mine[k] ? *(const pack<bf16> *)&stage[k * BLOCK] : zero_pack<bf16>();
      const pack<bf16> x = mine[k] ? *(const pack<bf16> *)&stage[STREAM + k * BLOCK] : zero_pack<bf16>();
      unpack(dy, a);
      unpack(x, b);
      unpack(w[k], f);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        g[k * N + j] = a[j] * f[j];
        xhat[k * N + j] = b[j] * rstd;
        dot[0] = fmaf(g[k * N + j], xhat[k * N + j], dot[0]);
        dw[k * N + j] = fmaf(a[j], rounded<bf16>(xhat[k * N + j]), dw[k * N + j]);
      }
    }
    team_all<op_sum>(t, space, turn, dot);
    if (CLUSTER) cluster_all<op_sum>(cl, shared, turn, dot);
    turn ^= 1;
    const float mean = dot[0] / (float)p.cols;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      float out[N];
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] = rstd * fmaf(-xhat[k * N + j], mean, g[k * N + j]);
      if (mine[k]) store_pack(p.dx + (int64_t)r * p.cols + own + k * t.threads * N, packed<bf16>(out));
    }
  }
  __pipeline_wait_prior(0);
  float *sums = (float *)stages;
  for (int i = 0; i < t.count; ++i) {
    __syncthreads();
    if (t.index != i) continue;
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float *sum = &sums[(k * t.threads + t.rank) * N + j];
        *sum = i == 0 ? dw[k * N + j] : *sum + dw[k * N + j];
      }
  }
  __syncthreads();
  float *slab = p.slabs + (int64_t)range * p.cols + first;
  const int left = p.cols - first, width = t.threads * PACKS * N;
  for (int c = threadIdx.x; c < (left < width ? left : width); c += BLOCK) slab[c] = sums[c];
  if (CLUSTER) cluster_end(cl);
}

__global__ void __launch_bounds__(512) column_sum(const float *slabs, bf16 *dw, int count, int cols) {
  __shared__ float parts[16][32];
  const int column = threadIdx.x % 32, part = threadIdx.x / 32, c = blockIdx.x * 32 + column;
  float sum = 0;
#pragma unroll 8
  for (int s = part; s < count; s += 16) sum += c < cols ? slabs[(int64_t)s * cols + c] : 0;
  parts[part][column] = sum;
  __syncthreads();
  if (part) return;
  for (int i = 1; i < 16; ++i) sum += parts[i][column];
  if (c < cols) dw[c] = from_f32<bf16>(sum);
}

enum { SETS = 3 };
static bf16 *dy[SETS], *x[SETS], *dx[SETS], *w, *dw;
static float *rstd, *slabs;

template <int BLOCK, int PACKS, int STAGES, int MIN> static void go(int rows, int cols) {
  const int most = BLOCK * PACKS * 8, cluster = (cols + most - 1) / most;
  if (cluster > 8) return;
  int team = BLOCK / 8;
  while (team < BLOCK && team * PACKS * 8 < cols) team *= 2;
  const int ranges = rows < 132 * MIN ? rows : 132 * MIN / (cluster > 1 && getenv("FEWER") ? cluster : 1);
  const int bytes = std::max(STAGES * 2 * PACKS * BLOCK * 16, PACKS * BLOCK * 32);
  auto kernel = cluster > 1 ? rows_bwd<BLOCK, PACKS, STAGES, MIN, true> : rows_bwd<BLOCK, PACKS, STAGES, MIN, false>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  auto launch = [&](int i, bool sum) {
    const problem p = {dy[i % SETS], x[i % SETS], w, dx[i % SETS], rstd, slabs, rows, cols, team, ranges};
    cudaLaunchConfig_t config = {};
    config.gridDim = ranges * cluster, config.blockDim = BLOCK, config.dynamicSmemBytes = bytes;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute, config.numAttrs = cluster > 1;
    cudaLaunchKernelEx(&config, kernel, p);
    if (sum) column_sum<<<(cols + 31) / 32, 512>>>(slabs, dw, ranges, cols);
  };
  const double first = median_us([&](int i) { launch(i, false); }), us = median_us([&](int i) { launch(i, true); });
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, kernel);
  printf(
      "  block %4d x %d packs, %d stages, %d an SM, cluster %d: %3d regs %4d local, rows %7.2f us, with sums %7.2f us %5.0f GB/s %s\n",
      BLOCK, PACKS, STAGES, MIN, cluster, attributes.numRegs, (int)attributes.localSizeBytes, first, us,
      6e-3 * rows * cols / us, cudaGetErrorString(cudaDeviceSynchronize()));
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int cols : {1024, 4096, 8192, 16384, 32768}) {
    const int rows = 8192;
    const size_t bytes = (size_t)rows * cols * 2;
    std::vector<uint16_t> host(rows * (size_t)cols);
    for (auto &h : host) h = 0x3f00 + (rand() & 0x80ff);
    for (int i = 0; i < SETS; ++i)
      for (bf16 **t : {&dy[i], &x[i], &dx[i]})
        cudaMalloc(t, bytes), cudaMemcpy(*t, host.data(), bytes, cudaMemcpyHostToDevice);
    std::vector<float> ones(rows, 1.0f);
    cudaMalloc(&w, cols * 2), cudaMalloc(&dw, cols * 2), cudaMalloc(&rstd, rows * 4),
        cudaMalloc(&slabs, 132l * 4 * cols * 4);
    cudaMemcpy(w, host.data(), cols * 2, cudaMemcpyHostToDevice),
        cudaMemcpy(rstd, ones.data(), rows * 4, cudaMemcpyHostToDevice);
    printf("%d x %d: floor %.2f us at 4280 GB/s\n", rows, cols, 3 * bytes / 4.28e6);
    go<512, 2, 4, 1>(rows, cols);
    go<512, 2, 3, 1>(rows, cols);
    go<512, 2, 6, 1>(rows, cols);
    go<1024, 1, 3, 1>(rows, cols);
    go<1024, 1, 4, 1>(rows, cols);
    go<1024, 1, 6, 1>(rows, cols);
    go<1024, 2, 3, 1>(rows, cols);
    go<512, 1, 4, 2>(rows, cols);
    go<512, 1, 6, 2>(rows, cols);
    go<512, 2, 3, 2>(rows, cols);
    go<256, 2, 4, 3>(rows, cols);
    go<256, 2, 4, 2>(rows, cols);
    go<256, 1, 6, 4>(rows, cols);

    for (int i = 0; i < SETS; ++i) cudaFree(dy[i]), cudaFree(x[i]), cudaFree(dx[i]);
    cudaFree(w), cudaFree(dw), cudaFree(rstd), cudaFree(slabs);
  }
}
