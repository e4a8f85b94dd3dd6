/* Study: the library's forward kernels in bf16 as a model meets them, one call with nothing in the caches. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_cold.cu -o cuda_cold && ./cuda_cold */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_time.cuh"

#include "cuda/kernel/norm_fwd.cuh"

#define HELD(name, kind, packs, hold)                                                \
  __global__ void __launch_bounds__(NORM_MOST_THREADS)                               \
      name(const __grid_constant__ tigon_norm_fwd_problem p, const norm_walk walk) { \
    norm_fwd_held<bf16, kind, packs, hold>(p, walk);                                 \
  }
HELD(rms_any, NORM_RMS, 4, HOLD_ANY)
HELD(rms_plain, NORM_RMS, 4, HOLD_PLAIN)
HELD(rms_early, NORM_RMS, 1, HOLD_EARLY)
HELD(add_any, NORM_ADD_RMS, 4, HOLD_ANY)
HELD(add_plain, NORM_ADD_RMS, 4, HOLD_PLAIN)
HELD(add_early, NORM_ADD_RMS, 1, HOLD_EARLY)
HELD(layer_any, NORM_LAYER, 4, HOLD_ANY)
HELD(layer_plain, NORM_LAYER, 4, HOLD_PLAIN)
HELD(layer_early, NORM_LAYER, 1, HOLD_EARLY)

template <bool HINTS> __global__ void copy(const uint4 *x, uint4 *y, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (HINTS)
    __stcs(y + i, __ldcs(x + i));
  else
    y[i] = x[i];
}

typedef void (*kernel)(tigon_norm_fwd_problem, norm_walk);

static void time_held(const char *name, kernel held, int packs, tigon_norm_fwd_problem p) {
  norm_walk walk = {};
  for (walk.team = 32; walk.team * packs * 8 < p.cols;) walk.team *= 2;
  if (walk.team > NORM_MOST_THREADS) return;
  printf("  %s %.2f", name, cold_us([&] { held<<<(unsigned)p.space.rows, walk.team>>>(p, walk); }));
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int cols : {1024, 4096, 8192, 16384}) {
    for (int rows : {1, 256, 2048, 8192}) {
      const size_t bytes = (size_t)rows * cols * 2;
      std::vector<uint16_t> host(bytes / 2);
      for (auto &h : host) h = 0x3f00 + (rand() & 0x80ff);
      void *of[6];
      for (void *&m : of) cudaMalloc(&m, bytes), cudaMemcpy(m, host.data(), bytes, cudaMemcpyHostToDevice);
      float *stats;
      cudaMalloc(&stats, (size_t)rows * 8);
      tigon_norm_fwd_problem p = {};
      p.space.rows = p.space.inner = rows, p.space.middle = 1, p.cols = cols;
      p.dtype = p.w_dtype = p.b_dtype = TIGON_BF16;
      p.x.data = of[0], p.y.data = of[1], p.residual.data = of[2], p.s.data = of[3], p.w = of[4], p.b = of[5];
      p.x.pitch[2] = p.y.pitch[2] = p.residual.pitch[2] = p.s.pitch[2] = cols;
      p.rstd = stats, p.mean = stats + rows, p.eps = 1e-6f;
      const int64_t n = (int64_t)bytes / 16;
      const unsigned blocks = (unsigned)((n + 255) / 256);
      printf("%d x %d: copy %.2f, with hints %.2f\n", rows, cols,
             cold_us([&] { copy<false><<<blocks, 256>>>((uint4 *)of[0], (uint4 *)of[1], n); }),
             cold_us([&] { copy<true><<<blocks, 256>>>((uint4 *)of[0], (uint4 *)of[1], n); }));
      time_held("rms any", rms_any, 4, p), time_held("plain", rms_plain, 4, p), time_held("early", rms_early, 1, p);
      time_held("  add any", add_any, 4, p), time_held("plain", add_plain, 4, p), time_held("early", add_early, 1, p);
      time_held("  layer any", layer_any, 4, p), time_held("plain", layer_plain, 4, p);
      time_held("early", layer_early, 1, p);
      puts(cudaGetLastError() == cudaSuccess ? "" : "  FAILED");
      for (void *m : of) cudaFree(m);
      cudaFree(stats);
    }
  }
}
