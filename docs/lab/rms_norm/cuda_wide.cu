/* Study: rows wider than a block's registers hold, bf16: forward with rows on their way into shared memory, backward with the second
 * sweep out of shared memory, and clusters whose barrier is waited for one row later. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_wide.cu -o cuda_wide && ./cuda_wide */
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
  int rows, cols, ranges;
};

template <int BLOCK, int PACKS, int STAGES, int MIN>
__global__ void __launch_bounds__(BLOCK, MIN) rows_fwd(const __grid_constant__ problem p) {
  constexpr int N = 8, STREAM = PACKS * BLOCK;
  __shared__ team_space<1> space;
  const team t = team_of(BLOCK);
  const int own = threadIdx.x * N;
  int ahead = blockIdx.x, stage_ahead = 0;
  auto fetch = [&]() {
    if (ahead < p.rows) {
      const bf16 *x = p.x + (int64_t)ahead * p.cols + own;
#pragma unroll
      for (int k = 0; k < PACKS; ++k)
        if (own + k * BLOCK * N < p.cols)
          __pipeline_memcpy_async(stages + stage_ahead * STREAM + threadIdx.x + k * BLOCK, x + k * BLOCK * N, 16);
    }
    __pipeline_commit();
    ahead += gridDim.x;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < STAGES - 1; ++i) fetch();
  int turn = 0, stage_now = 0;
  for (int r = blockIdx.x; r < p.rows; r += gridDim.x) {
    fetch();
    __pipeline_wait_prior(STAGES - 1);
    const uint4 *stage = stages + stage_now * STREAM + threadIdx.x;
    stage_now = stage_now + 1 == STAGES ? 0 : stage_now + 1;
    float sum[1] = {0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * BLOCK * N >= p.cols) continue;
      float v[N];
      {
        const uint4 bits = stage[k * BLOCK];
        unpack(*(const pack<bf16> *)&bits, v);
      }
#pragma unroll
      for (int j = 0; j < N; ++j) sum[0] = fmaf(v[j], v[j], sum[0]);
    }
    team_all<op_sum>(t, space, turn, sum);
    turn ^= 1;
    const float rstd = 1.0f / sqrtf(sum[0] / (float)p.cols + 1e-6f);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * BLOCK * N >= p.cols) continue;
      float v[N], w[N];
      {
        const uint4 bits = stage[k * BLOCK];
        unpack(*(const pack<bf16> *)&bits, v);
      }
      load_vector<bf16>(p.w, TIGON_BF16, own + k * BLOCK * N, w);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = rounded<bf16>(v[j] * rstd) * w[j];
      store_pack(p.dx + (int64_t)r * p.cols + own + k * BLOCK * N, packed<bf16>(v));
    }
  }
}

/* A block is a cluster's part of a row. Row r's sums are ready when row r + 1's have been taken. */
template <int BLOCK, int PACKS, int STAGES, int MIN, bool LATE>
__global__ void __launch_bounds__(BLOCK, MIN) rows_bwd(const __grid_constant__ problem p) {
  constexpr int N = 8, STREAM = PACKS * BLOCK;
  __shared__ team_space<1> space;
  __shared__ float shared[2];
  const team t = team_of(BLOCK);
  cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
  const int rank = group.block_rank(), size = group.num_blocks();
  const int own = (rank * BLOCK * PACKS + threadIdx.x) * N, range = blockIdx.x / size;
  int64_t begin, end;
  tigon_plan_range(p.rows, p.ranges, range, &begin, &end);
  float dw[PACKS * N] = {0};
  int ahead = (int)begin, stage_ahead = 0;
  auto fetch = [&]() {
    if (ahead < end) {
      uint4 *stage = stages + stage_ahead * 2 * STREAM + threadIdx.x;
      const int64_t at = (int64_t)ahead * p.cols + own;
#pragma unroll
      for (int k = 0; k < PACKS; ++k)
        if (own + k * BLOCK * N < p.cols) {
          __pipeline_memcpy_async(stage + k * BLOCK, p.dy + at + k * BLOCK * N, 16);
          __pipeline_memcpy_async(stage + STREAM + k * BLOCK, p.x + at + k * BLOCK * N, 16);
        }
    }
    __pipeline_commit();
    ++ahead;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  auto dots = [&](int r, const uint4 *stage) {
    const float rstd = __ldg(p.rstd + r);
    float dot[1] = {0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * BLOCK * N >= p.cols) continue;
      float a[N], b[N], f[N];
      {
        const uint4 bits = stage[k * BLOCK];
        unpack(*(const pack<bf16> *)&bits, a);
      }
      {
        const uint4 bits = stage[STREAM + k * BLOCK];
        unpack(*(const pack<bf16> *)&bits, b);
      }
      load_vector<bf16>(p.w, TIGON_BF16, own + k * BLOCK * N, f);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float xhat = b[j] * rstd;
        dot[0] = fmaf(a[j] * f[j], xhat, dot[0]);
        dw[k * N + j] = fmaf(a[j], rounded<bf16>(xhat), dw[k * N + j]);
      }
    }
    team_all<op_sum>(t, space, r & 1, dot);
    return dot[0];
  };
  auto put = [&](int r, const uint4 *stage, float dot) {
    const float rstd = __ldg(p.rstd + r), mean = dot / (float)p.cols;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * BLOCK * N >= p.cols) continue;
      float a[N], b[N], f[N];
      {
        const uint4 bits = stage[k * BLOCK];
        unpack(*(const pack<bf16> *)&bits, a);
      }
      {
        const uint4 bits = stage[STREAM + k * BLOCK];
        unpack(*(const pack<bf16> *)&bits, b);
      }
      load_vector<bf16>(p.w, TIGON_BF16, own + k * BLOCK * N, f);
#pragma unroll
      for (int j = 0; j < N; ++j) a[j] = rstd * fmaf(-b[j] * rstd, mean, a[j] * f[j]);
      store_pack(p.dx + (int64_t)r * p.cols + own + k * BLOCK * N, packed<bf16>(a));
    }
  };
  auto total = [&](int r) {
    float sum = 0;
    for (int b = 0; b < size; ++b) sum += *group.map_shared_rank(&shared[r & 1], b);
    return sum;
  };
  const int lead = LATE ? STAGES - 2 : STAGES - 1; /* rows ahead; when late, one more stage is in work */
  for (int i = 0; i < lead; ++i) fetch();
  int now = 0, before = 0;
  for (int r = (int)begin; r < end; ++r) {
    if (LATE && r > begin) { /* row r - 1's stage is still needed: r + lead goes elsewhere */
    }
    fetch();
    if (LATE)
      __pipeline_wait_prior(STAGES - 2);
    else
      __pipeline_wait_prior(STAGES - 1);
    const uint4 *stage = stages + now * 2 * STREAM + threadIdx.x;
    const float dot = dots(r, stage);
    if (!LATE) {
      float all = dot;
      if (size > 1) {
        if (threadIdx.x == 0) shared[r & 1] = dot;
        group.sync();
        all = total(r);
      }
      put(r, stage, all);
    } else {
      float all = 0;
      if (r > begin) {
        group.barrier_wait();
        all = total(r - 1);
      }
      if (threadIdx.x == 0) shared[r & 1] = dot;
      group.barrier_arrive();
      if (r > begin) put(r - 1, stages + before * 2 * STREAM + threadIdx.x, all);
      before = now;
    }
    now = now + 1 == STAGES ? 0 : now + 1;
  }
  if (LATE && begin < end) {
    group.barrier_wait();
    put((int)end - 1, stages + before * 2 * STREAM + threadIdx.x, total((int)end - 1));
  }
  float *slab = p.slabs + (int64_t)range * p.cols;
#pragma unroll
  for (int k = 0; k < PACKS; ++k)
    if (own + k * BLOCK * N < p.cols)
#pragma unroll
      for (int j = 0; j < N; j += 4) *(float4 *)&slab[own + k * BLOCK * N + j] = *(float4 *)&dw[k * N + j];
  if (size > 1) group.sync();
}

enum { SETS = 3 };
static bf16 *dy[SETS], *x[SETS], *dx[SETS], *w;
static float *rstd, *slabs;

template <int BLOCK, int PACKS, int STAGES, int MIN> static void fwd(int rows, int cols) {
  if (BLOCK * PACKS * 8 < cols || BLOCK * PACKS * 8 >= 2 * cols) return;
  const int bytes = STAGES * PACKS * BLOCK * 16;
  auto kernel = rows_fwd<BLOCK, PACKS, STAGES, MIN>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  const double us = median_us([&](int i) {
    const problem p = {dy[i % SETS], x[i % SETS], w, dx[i % SETS], rstd, slabs, rows, cols, 0};
    kernel<<<132 * MIN, BLOCK, bytes>>>(p);
  });
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, kernel);
  printf("  fwd block %4d x %d packs, %d stages, %d an SM: %3d regs, %7.2f us %5.0f GB/s %s\n", BLOCK, PACKS, STAGES,
         MIN, attributes.numRegs, us, 4e-3 * rows * cols / us, cudaGetErrorString(cudaDeviceSynchronize()));
}

template <int BLOCK, int PACKS, int STAGES, int MIN, bool LATE> static void bwd(int rows, int cols) {
  const int most = BLOCK * PACKS * 8, cluster = (cols + most - 1) / most;
  if (cluster > 8 || (cluster == 1 && 2 * cols <= most)) return;
  const int ranges = 132 * MIN / cluster;
  const int bytes = STAGES * 2 * PACKS * BLOCK * 16;
  auto kernel = rows_bwd<BLOCK, PACKS, STAGES, MIN, LATE>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  auto launch = [&](int i) {
    const problem p = {dy[i % SETS], x[i % SETS], w, dx[i % SETS], rstd, slabs, rows, cols, ranges};
    cudaLaunchConfig_t config = {};
    config.gridDim = ranges * cluster, config.blockDim = BLOCK, config.dynamicSmemBytes = bytes;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    config.attrs = &attribute, config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, p);
  };
  const double us = median_us(launch);
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, kernel);
  printf("  bwd block %4d x %d packs, %d stages, %d an SM, cluster %d %s: %3d regs %4d local, %7.2f us %5.0f GB/s %s\n",
         BLOCK, PACKS, STAGES, MIN, cluster, LATE ? "late" : "    ", attributes.numRegs, (int)attributes.localSizeBytes,
         us, 6e-3 * rows * cols / us, cudaGetErrorString(cudaDeviceSynchronize()));
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int cols : {4096, 8192, 16384, 32768, 65536}) {
    const int rows = cols > 32768 ? 4096 : 8192;
    const size_t bytes = (size_t)rows * cols * 2;
    std::vector<uint16_t> host(rows * (size_t)cols);
    for (auto &h : host) h = 0x3f00 + (rand() & 0x80ff);
    for (int i = 0; i < SETS; ++i)
      for (bf16 **t : {&dy[i], &x[i], &dx[i]})
        cudaMalloc(t, bytes), cudaMemcpy(*t, host.data(), bytes, cudaMemcpyHostToDevice);
    std::vector<float> ones(rows, 1.0f);
    cudaMalloc(&w, cols * 2), cudaMalloc(&rstd, rows * 4), cudaMalloc(&slabs, 132l * 4 * cols * 4);
    cudaMemcpy(w, host.data(), cols * 2, cudaMemcpyHostToDevice),
        cudaMemcpy(rstd, ones.data(), rows * 4, cudaMemcpyHostToDevice);
    printf("%d x %d: floor fwd %.2f bwd %.2f us at 4280 GB/s\n", rows, cols, 2 * bytes / 4.28e6, 3 * bytes / 4.28e6);
    fwd<512, 1, 6, 2>(rows, cols);
    fwd<256, 2, 6, 3>(rows, cols);
    fwd<512, 2, 4, 2>(rows, cols);
    fwd<512, 4, 3, 2>(rows, cols);
    fwd<1024, 2, 3, 2>(rows, cols);
    fwd<512, 8, 3, 1>(rows, cols);
    fwd<1024, 4, 3, 1>(rows, cols);
    fwd<1024, 8, 1, 1>(rows, cols);
    bwd<512, 1, 4, 2, false>(rows, cols);
    bwd<512, 1, 4, 2, true>(rows, cols);
    bwd<512, 2, 4, 1, false>(rows, cols);
    bwd<512, 2, 4, 1, true>(rows, cols);
    bwd<512, 2, 3, 2, false>(rows, cols);
    bwd<512, 2, 3, 2, true>(rows, cols);
    bwd<512, 4, 3, 1, false>(rows, cols);
    bwd<512, 4, 3, 1, true>(rows, cols);
    bwd<1024, 1, 6, 1, false>(rows, cols);
    bwd<1024, 1, 6, 1, true>(rows, cols);
    bwd<1024, 2, 3, 1, false>(rows, cols);
    bwd<1024, 2, 3, 1, true>(rows, cols);
    for (int i = 0; i < SETS; ++i) cudaFree(dy[i]), cudaFree(x[i]), cudaFree(dx[i]);
    cudaFree(w), cudaFree(rstd), cudaFree(slabs);
  }
}
