/* Study: rms_norm forward of wide rows that are read twice, the second time out of the cache, bf16. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_walked.cu -o cuda_walked && ./cuda_walked */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_time.cuh"

#include "cuda/kernel/chunk.cuh"
#include "cuda/kernel/team.cuh"

/* PACKS loads of a thread in flight. */
template <int BLOCK, int PACKS, int MIN, bool STREAM>
__global__ void __launch_bounds__(BLOCK, MIN)
    walked(const bf16 *xs, const bf16 *ws, bf16 *ys, float *rstds, int rows, int cols, float eps) {
  constexpr int N = 8;
  __shared__ team_space<1> space;
  const team t = team_of(BLOCK);
  const int r = blockIdx.x;
  const bf16 *x = xs + (int64_t)r * cols + threadIdx.x * N;
  bf16 *y = ys + (int64_t)r * cols + threadIdx.x * N;
  const bf16 *w = ws + threadIdx.x * N;
  float sum[1] = {0};
  for (int c = 0; c < cols; c += BLOCK * N * PACKS) {
    chunk<bf16, N> v[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      v[k] = c + (k * BLOCK + (int)threadIdx.x) * N < cols ? load_chunk<bf16, N>(x + c + k * BLOCK * N)
                                                           : zero_chunk<bf16, N>();
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      float f[N];
      unpack_chunk(v[k], f);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[0] = fmaf(f[j], f[j], sum[0]);
    }
  }
  team_all<op_sum>(t, space, 0, sum);
  const float rstd = 1.0f / sqrtf(sum[0] / (float)cols + eps);
  if (threadIdx.x == 0) rstds[r] = rstd;
  for (int c = 0; c < cols; c += BLOCK * N * PACKS) {
    chunk<bf16, N> v[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      if (c + (k * BLOCK + (int)threadIdx.x) * N < cols)
        v[k] = STREAM ? chunk<bf16, N>{__ldcs((const uint4 *)(x + c + k * BLOCK * N))}
                      : load_chunk<bf16, N>(x + c + k * BLOCK * N);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (c + (k * BLOCK + (int)threadIdx.x) * N >= cols) continue;
      float f[N], g[N];
      unpack_chunk(v[k], f);
      unpack_chunk(chunk<bf16, N>{__ldg((const uint4 *)(w + c + k * BLOCK * N))}, g);
#pragma unroll
      for (int j = 0; j < N; ++j) f[j] = rounded<bf16>(f[j] * rstd) * g[j];
      if (STREAM)
        __stcs((uint4 *)(y + c + k * BLOCK * N), pack_chunk<bf16, N>(f).bits);
      else
        store_chunk(y + c + k * BLOCK * N, pack_chunk<bf16, N>(f));
    }
  }
}

enum { SETS = 3 };
static bf16 *x[SETS], *y[SETS], *w;
static float *rstds;

template <int BLOCK, int PACKS, int MIN, bool STREAM> static void go(int rows, int cols) {
  const double us = median_us([&](int i) {
    walked<BLOCK, PACKS, MIN, STREAM><<<rows, BLOCK>>>(x[i % SETS], w, y[i % SETS], rstds, rows, cols, 1e-6f);
  });
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, walked<BLOCK, PACKS, MIN, STREAM>);
  printf("  block %4d x %d packs, %d an SM, %s: %3d regs %3d local %7.2f us %5.0f GB/s\n", BLOCK, PACKS, MIN,
         STREAM ? "stream" : "plain ", attributes.numRegs, (int)attributes.localSizeBytes, us, 4e-3 * rows * cols / us);
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int cols : {4096, 16384, 32768, 65536}) {
    const int rows = cols > 32768 ? 4096 : 8192;
    const size_t bytes = (size_t)rows * cols * 2;
    std::vector<uint16_t> host(rows * (size_t)cols);
    for (auto &h : host) h = 0x3f00 + (rand() & 0x80ff);
    for (int i = 0; i < SETS; ++i)
      cudaMalloc(&x[i], bytes), cudaMalloc(&y[i], bytes), cudaMemcpy(x[i], host.data(), bytes, cudaMemcpyHostToDevice);
    cudaMalloc(&w, cols * 2), cudaMemcpy(w, host.data(), cols * 2, cudaMemcpyHostToDevice),
        cudaMalloc(&rstds, rows * 4);
    const double us =
        median_us([&](int i) { cudaMemcpyAsync(y[i % SETS], x[i % SETS], bytes, cudaMemcpyDeviceToDevice); });
    printf("%d x %d: cudaMemcpy %.2f us %.0f GB/s\n", rows, cols, us, 2e-3 * bytes / us);
    go<512, 1, 4, true>(rows, cols);
    go<512, 1, 4, false>(rows, cols);
    go<512, 2, 4, true>(rows, cols);
    go<512, 2, 4, false>(rows, cols);
    go<1024, 1, 2, true>(rows, cols);
    go<1024, 1, 2, false>(rows, cols);
    go<1024, 2, 2, true>(rows, cols);
    go<1024, 2, 2, false>(rows, cols);
    go<512, 4, 2, true>(rows, cols);
    go<512, 4, 2, false>(rows, cols);
    go<1024, 4, 1, false>(rows, cols);
    for (int i = 0; i < SETS; ++i) cudaFree(x[i]), cudaFree(y[i]);
    cudaFree(w), cudaFree(rstds);
  }
}
