/* What the studies of this folder measure with. */
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

/* Microseconds of launch(i), the median of nine times ten calls between two events. */
template <class F> static double median_us(F launch) {
  cudaEvent_t a, b;
  cudaEventCreate(&a), cudaEventCreate(&b);
  std::vector<float> t;
  for (int i = 0; i < 3; ++i) launch(i);
  for (int i = 0; i < 9; ++i) {
    cudaEventRecord(a);
    for (int k = 0; k < 10; ++k) launch(k);
    cudaEventRecord(b);
    cudaEventSynchronize(b);
    float ms;
    cudaEventElapsedTime(&ms, a, b);
    t.push_back(ms * 100);
  }
  std::sort(t.begin(), t.end());
  return t[t.size() / 2];
}

__global__ static void read_all(const uint4 *from, int64_t n, unsigned *sum) {
  unsigned all = 0;
  for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
    all += from[i].x;
  if (all == 1) *sum = all; /* so that it is not left out */
}
__global__ static void wait_ns(long long ns) {
  long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  while (now - begin < ns);
}

/* Microseconds of one launch() with nothing of its memory or code in the caches; the device waits while the host launches. */
template <class F> static double cold_sample(F launch) {
  const int64_t bytes = 256 << 20;
  static uint4 *memory;
  static unsigned *sum;
  static cudaEvent_t a, b;
  if (!memory) {
    cudaMalloc(&memory, bytes), cudaMemset(memory, 0, bytes), cudaMalloc(&sum, sizeof *sum);
    cudaEventCreate(&a), cudaEventCreate(&b);
  }
  read_all<<<1056, 512>>>(memory, bytes / 16, sum);
  wait_ns<<<1, 1>>>(30000);
  cudaEventRecord(a), launch(), cudaEventRecord(b);
  cudaEventSynchronize(b);
  float ms;
  cudaEventElapsedTime(&ms, a, b);
  return ms * 1e3;
}

/* The median of 21. */
template <class F> static double cold_us(F launch) {
  std::vector<double> t;
  for (int i = 0; i < 24; ++i) {
    const double us = cold_sample(launch);
    if (i >= 3) t.push_back(us);
  }
  std::sort(t.begin(), t.end());
  return t[t.size() / 2];
}

/* A way to make one call, and the microseconds of its samples. */
struct way {
  std::string name;
  std::function<void()> launch;
  std::vector<float> us;
};

/* Samples of one cold call each, of all ways in turns; then a line a way: its quartiles in us, and what is said of it. */
inline void time_in_turns(std::vector<way> &ways, int samples, const std::vector<std::string> &notes) {
  for (int s = 0; s < samples; ++s)
    for (way &one : ways) one.us.push_back((float)cold_sample(one.launch));
  for (size_t w = 0; w < ways.size(); ++w) {
    std::vector<float> &us = ways[w].us;
    std::sort(us.begin(), us.end());
    printf("  %-58s %7.2f %7.2f %7.2f%s\n", ways[w].name.c_str(), us[samples / 4], us[samples / 2], us[samples * 3 / 4],
           notes[w].c_str());
  }
}
