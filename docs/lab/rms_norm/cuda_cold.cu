/* Study: the library's forward kernels in bf16 as a model meets them, one call with nothing in the caches. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 -Isrc -Iinclude docs/lab/rms_norm/cuda_cold.cu -o cuda_cold && ./cuda_cold */
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "cuda_time.cuh"

#include "cuda/kernel/norm_fwd.cuh"

#define HELD(name, kind, packs, hold, ...)                                                    \
  __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ norm_plain p) { \
    norm_fwd_held<bf16, kind, packs, hold>(p, p.rows, p.team);                                \
  }
#define HELD_ALL(name, kind)                                                               \
  __global__ void __launch_bounds__(NORM_MOST_THREADS)                                     \
      name##_any(const __grid_constant__ tigon_norm_fwd_problem p, const norm_walk walk) { \
    norm_fwd_held<bf16, kind, 4, HOLD_ANY>(p, p.space.rows, walk.team);                    \
  }                                                                                        \
  HELD(name##_2, kind, 2, HOLD_EARLY, NORM_MOST_THREADS)                                   \
  HELD(name##_4, kind, 4, HOLD_EARLY, NORM_MOST_THREADS)                                   \
  HELD(name##_late, kind, 4, HOLD_LATE, NORM_HELD_THREADS, 3)
HELD_ALL(rms, NORM_RMS)
HELD_ALL(add, NORM_ADD_RMS)
HELD_ALL(layer, NORM_LAYER)

template <bool HINTS> __global__ void copy(const uint4 *x, uint4 *y, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (HINTS)
    __stcs(y + i, __ldcs(x + i));
  else
    y[i] = x[i];
}

static int team_for(int cols, int packs) {
  int team = 32;
  while (team * packs * 8 < cols) team *= 2;
  return team;
}
static void time_any(const char *name, void (*held)(tigon_norm_fwd_problem, norm_walk), tigon_norm_fwd_problem p) {
  norm_walk walk = {};
  walk.team = team_for((int)p.cols, 4);
  printf("  %s any %.2f", name, cold_us([&] { held<<<(unsigned)p.space.rows, walk.team>>>(p, walk); }));
}
static void time_plain(const char *name, void (*held)(norm_plain), int packs, int most, norm_plain p) {
  p.team = team_for(p.cols, packs);
  if (p.team <= most) printf(" %s %.2f", name, cold_us([&] { held<<<(unsigned)p.rows, p.team>>>(p); }));
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
      norm_plain q = {};
      q.cols = cols, q.rows = rows, q.w = p.w, q.b = p.b, q.rstd = p.rstd, q.mean = p.mean, q.eps = p.eps;
      q.x = {of[0], cols}, q.y = {of[1], cols}, q.residual = {of[2], cols}, q.s = {of[3], cols};
#define TIME_ALL(name)                                                                \
  time_any(#name, name##_any, p), time_plain("2", name##_2, 2, NORM_MOST_THREADS, q); \
  time_plain("4", name##_4, 4, NORM_MOST_THREADS, q), time_plain("late", name##_late, 4, NORM_HELD_THREADS, q)
      TIME_ALL(rms);
      TIME_ALL(add);
      TIME_ALL(layer);
      puts(cudaGetLastError() == cudaSuccess ? "" : "  FAILED");
      for (void *m : of) cudaFree(m);
      cudaFree(stats);
    }
  }
}
