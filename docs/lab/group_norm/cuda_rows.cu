/* Study: rows of group_norm that a block holds, bf16: forward by the kernel of any pitch and by that of dense rows, and backward by one team
 * of a block and by two, one cold call, in turns, outputs against f64. Build and run:
 *   nvcc -std=c++17 -O3 -arch=sm_90 -Isrc -Iinclude -Idocs/lab/rms_norm docs/lab/group_norm/cuda_rows.cu -o cuda_rows && ./cuda_rows */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "cuda_time.cuh"

#include "cuda/kernel/group_norm_bwd.cuh"
#include "cuda/kernel/group_norm_fwd.cuh"

#define ANY(name, packs, ...)                                                               \
  __global__ void __launch_bounds__(__VA_ARGS__)                                            \
      name(const __grid_constant__ tigon_group_norm_fwd_problem p, const group_walk walk) { \
    group_fwd_held<bf16, packs, false>(p, walk);                                            \
  }
#define PLAIN(name, packs, ...)                                                                \
  __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ group_plain p) { \
    group_fwd_plain<bf16, packs>(p);                                                           \
  }
#define BWD(name, packs, stages)                                                            \
  __global__ void __launch_bounds__(GROUP_BWD_THREADS)                                      \
      name(const __grid_constant__ tigon_group_norm_bwd_problem p, const group_walk walk) { \
    group_bwd_held<bf16, packs, stages, false>(p, walk);                                    \
  }
ANY(any_2, 2, GROUP_FWD_THREADS)
ANY(any_4, 4, GROUP_MOST_THREADS)
PLAIN(plain_2, 2, GROUP_PLAIN_THREADS, 2)
PLAIN(plain_2_40, 2, 256, 6)
PLAIN(plain_4, 4, GROUP_PLAIN_THREADS, 2)
PLAIN(plain_4_48, 4, 256, 5)
PLAIN(plain_4_40, 4, GROUP_PLAIN_THREADS, 3)
BWD(bwd_2, 2, 4)
BWD(bwd_2_3, 2, 3)
BWD(bwd_4, 4, 3)
__global__ void copy(const uint4 *x, uint4 *y, int64_t n) {
  const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i];
}

static float host(bf16 v) { return __bfloat162float(v); }
struct shape {
  int batch, groups, channels, run;
};

/* How far y, or dx, of some rows is off, in units of its rounding to bf16 and 2^-20 of what its terms are like. */
static double wrong(const shape &s, bool backward, const std::vector<bf16> &x, const std::vector<bf16> &dy,
                    const std::vector<bf16> &w, const std::vector<bf16> &b, const bf16 *out) {
  const int64_t row = (int64_t)s.channels * s.run, rows = (int64_t)s.batch * s.groups;
  double worst = 0;
  std::vector<bf16> got(row);
  for (int64_t r : {(int64_t)0, rows / 3, rows - 1}) {
    cudaMemcpy(got.data(), out + r * row, row * 2, cudaMemcpyDeviceToHost);
    double mean = 0, variance = 0, g = 0, dot = 0;
    auto at = [&](const std::vector<bf16> &t, int64_t i) { return (double)host(t[r * row + i]); };
    auto channel = [&](int64_t i) { return r % s.groups * s.channels + i / s.run; };
    for (int64_t i = 0; i < row; ++i) mean += at(x, i) / row;
    for (int64_t i = 0; i < row; ++i) variance += (at(x, i) - mean) * (at(x, i) - mean) / row;
    const double rstd = 1 / sqrt(variance + 1e-5);
    for (int64_t i = 0; backward && i < row; ++i) {
      const double of = at(dy, i) * host(w[channel(i)]);
      g += of / row, dot += of * (at(x, i) - mean) * rstd / row;
    }
    for (int64_t i = 0; i < row; ++i) {
      const double xhat = (at(x, i) - mean) * rstd, weight = host(w[channel(i)]);
      const double want = backward ? rstd * (at(dy, i) * weight - g - xhat * dot) : xhat * weight + host(b[channel(i)]);
      const double terms =
          backward ? rstd * (fabs(at(dy, i) * weight) + fabs(g) + fabs(xhat * dot)) : fabs(xhat * weight) + 1;
      const double off = fabs(host(got[i]) - want) / (fabs(want) * 0x1p-8 + terms * 0x1p-20);
      if (!(off <= worst)) worst = off;
    }
  }
  return worst;
}

static void study(const shape &s) {
  const int64_t rows = (int64_t)s.batch * s.groups, row = (int64_t)s.channels * s.run, all = rows * row;
  const int64_t channels = (int64_t)s.groups * s.channels, packs = row / 8;
  std::vector<bf16> hx(all), hdy(all), hw(channels), hb(channels);
  for (auto *t : {&hx, &hdy, &hw, &hb})
    for (auto &v : *t) v = __float2bfloat16(rand() / (float)RAND_MAX * 4 - (t == &hx ? 1 : 2));
  bf16 *x, *dy, *w, *b, *out;
  float *mean, *rstd, *slabs;
  const int ranges = std::max(1, std::min(s.batch, 132 / s.groups));
  cudaMalloc(&x, all * 2), cudaMalloc(&dy, all * 2), cudaMalloc(&out, all * 2), cudaMalloc(&w, channels * 2);
  cudaMalloc(&b, channels * 2), cudaMalloc(&mean, rows * 4), cudaMalloc(&rstd, rows * 4);
  cudaMalloc(&slabs, ranges * 2 * channels * 4);
  cudaMemcpy(x, hx.data(), all * 2, cudaMemcpyHostToDevice),
      cudaMemcpy(dy, hdy.data(), all * 2, cudaMemcpyHostToDevice);
  cudaMemcpy(w, hw.data(), channels * 2, cudaMemcpyHostToDevice);
  cudaMemcpy(b, hb.data(), channels * 2, cudaMemcpyHostToDevice);
  const tigon_planes planes[3] = {
      {x, channels * s.run, s.run}, {dy, channels * s.run, s.run}, {out, channels * s.run, s.run}};
  const tigon_group_norm_fwd_problem fwd = {s.batch,   s.groups,  s.channels, s.run, TIGON_BF16, TIGON_BF16, TIGON_BF16,
                                            planes[0], planes[2], w,          b,     mean,       rstd,       1e-5f};
  tigon_group_norm_bwd_problem bwd = {};
  bwd.batch = s.batch, bwd.groups = s.groups, bwd.channels = s.channels, bwd.run = s.run;
  bwd.dtype = bwd.w_dtype = TIGON_BF16, bwd.dy = planes[1], bwd.x = planes[0], bwd.dx = planes[2];
  bwd.w = w, bwd.mean = mean, bwd.rstd = rstd, bwd.slabs = slabs, bwd.dw = bwd.db = slabs;
  group_plain plain = {};
  plain.x = x, plain.w = w, plain.b = b, plain.y = out, plain.mean = mean, plain.rstd = rstd, plain.packs = (int)packs;
  plain.channel_of = (unsigned)(((1ll << 31) + packs / s.channels - 1) / (packs / s.channels));
  plain.channels = s.channels, plain.eps = 1e-5f;
  auto team_for = [&](int each, int most) {
    int team = 32;
    while (team < most && (int64_t)team * each < packs) team *= 2;
    return (int64_t)team * each >= packs ? team : 0;
  };
  std::vector<way> ways;
  std::vector<bool> backward; /* of each */
  auto add = [&](const char *name, bool back, std::function<void()> launch) {
    ways.push_back({name, launch, {}}), backward.push_back(back);
  };
  auto add_any = [&](const char *name, decltype(any_2) kernel, int each, int most) {
    group_walk walk = {};
    walk.team = team_for(each, most), walk.share = (int)packs;
    if (!walk.team) return;
    const int threads = std::max(walk.team, 32);
    add(name, false, [=] { kernel<<<rows, threads>>>(fwd, walk); });
  };
  auto add_plain = [&](const char *name, decltype(plain_2) kernel, int each, int most) {
    const int threads = team_for(each, most);
    if (threads) add(name, false, [=] { kernel<<<dim3(s.groups, s.batch), threads>>>(plain); });
  };
  auto add_bwd = [&](const char *name, decltype(bwd_2) kernel, int each, int stages, int most) {
    group_walk walk = {};
    walk.team = team_for(each, most), walk.share = (int)packs, walk.ranges = ranges;
    if (!walk.team) return;
    const int bytes = stages * 2 * each * GROUP_BWD_THREADS * 16;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    add(name, true, [=] { kernel<<<s.groups * ranges, GROUP_BWD_THREADS, bytes>>>(bwd, walk); });
  };
  add("copy", false, [=] { copy<<<(all / 8 + 255) / 256, 256>>>((uint4 *)x, (uint4 *)out, all / 8); });
  add_any("any pitch, 2 packs", any_2, 2, GROUP_FWD_THREADS),
      add_any("any pitch, 4 packs", any_4, 4, GROUP_MOST_THREADS);
  add_plain("dense, 2 packs", plain_2, 2, GROUP_PLAIN_THREADS),
      add_plain("dense, 2 packs, 40 registers", plain_2_40, 2, 256);
  add_plain("dense, 4 packs", plain_4, 4, GROUP_PLAIN_THREADS),
      add_plain("dense, 4 packs, 48 registers", plain_4_48, 4, 256);
  add_plain("dense, 4 packs, 40 registers", plain_4_40, 4, GROUP_PLAIN_THREADS);
  add_bwd("backward, 2 packs", bwd_2, 2, 4, 512), add_bwd("backward, 2 packs, 3 stages", bwd_2_3, 2, 3, 512);
  add_bwd("backward, 4 packs", bwd_4, 4, 3, 512);
  printf("batch %d, %d groups of %d channels of %d: us, quartiles; copies at 4.28 TB/s %.1f forward, %.1f backward\n",
         s.batch, s.groups, s.channels, s.run, all * 4 / 4.28e6, all * 6 / 4.28e6);

  ways[1].launch(); /* mean and rstd, for backward */
  std::vector<std::string> notes = {""};
  for (size_t i = 1; i < ways.size(); ++i) {
    cudaMemset(out, 0xff, all * 2), ways[i].launch();
    notes.push_back(wrong(s, backward[i], hx, hdy, hw, hb, out) <= 1 ? "" : "  WRONG");
  }
  time_in_turns(ways, 31, notes);
  const cudaError_t error = cudaDeviceSynchronize();
  if (error != cudaSuccess) puts(cudaGetErrorString(error));
  for (void *m : {(void *)x, (void *)dy, (void *)out, (void *)w, (void *)b, (void *)mean, (void *)rstd, (void *)slabs})
    cudaFree(m);
}

int main(int count, char **) {
  const shape shapes[] = {{128, 32, 16, 512}, {32, 32, 16, 512},  {4, 32, 16, 512},   {128, 32, 10, 4096 / 8},
                          {256, 32, 16, 256}, {512, 32, 16, 128}, {64, 32, 16, 1024}, {128, 32, 16, 488}};
  for (const shape &s : shapes)
    if (count == 1 || s.batch < 32) study(s); /* with an argument: quick, for a sanitizer */
}
