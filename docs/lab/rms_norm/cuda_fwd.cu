/* Study: rms_norm forward in bf16, several ways to hold a row. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_fwd.cu -o cuda_fwd && ./cuda_fwd */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_time.cuh"

#include "cuda/kernel/element.cuh"
#include "cuda/kernel/team.cuh"

/* A row a team of THREADS, PACKS of 16 bytes a thread; BLOCK threads a block, of which at least MIN are wanted on an SM. */
template <int THREADS, int PACKS, int BLOCK, int MIN>
__global__ void __launch_bounds__(BLOCK, MIN)
    held(const bf16 *x, const bf16 *w, bf16 *y, float *rstds, int rows, int cols, float eps) {
  __shared__ float sums[BLOCK / 32];
  const int rank = threadIdx.x % THREADS, index = threadIdx.x / THREADS;
  const int r = blockIdx.x * (BLOCK / THREADS) + index;
  if (THREADS <= 32 && r >= rows) return;
  const bf16 *row = x + (int64_t)r * cols;
  pack<bf16> v[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    const int c = (k * THREADS + rank) * 8;
    v[k] = c < cols && r < rows ? load_pack(row + c) : zero_pack<bf16>();
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    float f[8];
    unpack(v[k], f);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum = fmaf(f[j], f[j], sum);
  }
  sum = warp_all<op_sum>(sum);
  if (THREADS > 32) {
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    if (THREADS == BLOCK)
      __syncthreads();
    else
      asm volatile("bar.sync %0, %1;" ::"r"(index), "r"(THREADS) : "memory");
    constexpr int WARPS = THREADS / 32;
    sum = sums[index * WARPS + (threadIdx.x & (WARPS - 1))];
#pragma unroll
    for (int d = WARPS / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  }
  const float rstd = 1.0f / sqrtf(sum / (float)cols + eps);
  if (r >= rows) return;
  if (rank == 0) rstds[r] = rstd;
  bf16 *out = y + (int64_t)r * cols;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    const int c = (k * THREADS + rank) * 8;
    if (c >= cols) continue;
    float f[8], g[8];
    unpack(v[k], f);
    const uint4 bits = __ldg((const uint4 *)(w + c));
    unpack(*(const pack<bf16> *)&bits, g);
#pragma unroll
    for (int j = 0; j < 8; ++j) f[j] = rounded<bf16>(f[j] * rstd) * g[j];
    store_pack(out + c, packed<bf16>(f));
  }
}

__global__ void copy(const uint4 *x, uint4 *y, int64_t n) {
  const int64_t at = (int64_t)blockIdx.x * 1024 + threadIdx.x;
  uint4 v[4];
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (at + k * 256 < n) v[k] = __ldcs(x + at + k * 256);
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (at + k * 256 < n) __stcs(y + at + k * 256, v[k]);
}

enum { SETS = 4 };
static bf16 *x[SETS], *y[SETS], *w;
static float *rstds;

template <int THREADS, int PACKS, int BLOCK, int MIN> static void try_held(int rows, int cols) {
  if (THREADS * PACKS * 8 < cols || THREADS * PACKS * 8 >= 2 * cols) return;
  const int teams = BLOCK / THREADS;
  const double us = median_us([&](int i) {
    held<THREADS, PACKS, BLOCK, MIN>
        <<<(rows + teams - 1) / teams, BLOCK>>>(x[i % SETS], w, y[i % SETS], rstds, rows, cols, 1e-6f);
  });
  cudaFuncAttributes attributes;
  cudaFuncGetAttributes(&attributes, held<THREADS, PACKS, BLOCK, MIN>);
  printf("  team %4d x %2d packs, block %4d, min %2d: %3d regs %7.2f us %6.0f GB/s %s\n", THREADS, PACKS, BLOCK, MIN,
         attributes.numRegs, us, 4e-3 * rows * cols / us, cudaGetLastError() == cudaSuccess ? "" : "FAILED");
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int cols : {1024, 4096, 8192, 16384, 32768}) {
    const int rows = 8192;
    const size_t bytes = (size_t)rows * cols * 2;
    std::vector<uint16_t> host(rows * (size_t)cols);
    for (auto &h : host) h = 0x3f00 + (rand() & 0x80ff);
    for (int i = 0; i < SETS; ++i)
      cudaMalloc(&x[i], bytes), cudaMalloc(&y[i], bytes), cudaMemcpy(x[i], host.data(), bytes, cudaMemcpyHostToDevice);
    cudaMalloc(&w, cols * 2), cudaMemcpy(w, host.data(), cols * 2, cudaMemcpyHostToDevice),
        cudaMalloc(&rstds, rows * 4);
    const double us = median_us([&](int i) {
      const int64_t n = bytes / 16;
      copy<<<(n + 1023) / 1024, 256>>>((uint4 *)x[i % SETS], (uint4 *)y[i % SETS], n);
    });
    printf("%d x %d: copy %.2f us %.0f GB/s\n", rows, cols, us, 2e-3 * bytes / us);
    try_held<32, 4, 256, 1>(rows, cols);
    try_held<32, 4, 128, 8>(rows, cols);
    try_held<64, 2, 256, 8>(rows, cols);
    try_held<128, 1, 256, 8>(rows, cols);
    try_held<32, 16, 128, 4>(rows, cols);
    try_held<64, 8, 256, 1>(rows, cols);
    try_held<128, 4, 128, 8>(rows, cols);
    try_held<128, 4, 256, 6>(rows, cols);
    try_held<128, 4, 256, 8>(rows, cols);
    try_held<256, 2, 256, 4>(rows, cols);
    try_held<256, 2, 256, 8>(rows, cols);
    try_held<512, 1, 512, 4>(rows, cols);
    try_held<512, 1, 512, 2>(rows, cols);
    try_held<128, 8, 128, 8>(rows, cols);
    try_held<256, 4, 256, 4>(rows, cols);
    try_held<256, 4, 256, 6>(rows, cols);
    try_held<256, 4, 256, 8>(rows, cols);
    try_held<512, 2, 512, 4>(rows, cols);
    try_held<1024, 1, 1024, 2>(rows, cols);
    try_held<256, 8, 256, 4>(rows, cols);
    try_held<512, 4, 512, 2>(rows, cols);
    try_held<512, 4, 512, 3>(rows, cols);
    try_held<512, 4, 512, 4>(rows, cols);
    try_held<1024, 2, 1024, 1>(rows, cols);
    try_held<1024, 2, 1024, 2>(rows, cols);
    try_held<512, 8, 512, 2>(rows, cols);
    try_held<1024, 4, 1024, 1>(rows, cols);
    try_held<1024, 4, 1024, 2>(rows, cols);
    try_held<32, 4, 128, 10>(rows, cols);
    try_held<128, 4, 128, 10>(rows, cols);
    try_held<256, 4, 256, 5>(rows, cols);
    for (int i = 0; i < SETS; ++i) cudaFree(x[i]), cudaFree(y[i]);
    cudaFree(w), cudaFree(rstds);
  }
}
