/* Rows that are read more often than once, as row_cut.h cuts them: in the registers of a team, or of the teams of a cluster, or
 * walked. */
#ifndef TIGON_CUDA_KERNEL_ROW_CUH
#define TIGON_CUDA_KERNEL_ROW_CUH

#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/element.cuh"
#include "cuda/row_cut.h"

#define MINUS_INF __int_as_float(0xff800000)

/* A NaN does not count. */
struct op_largest {
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};
/* What is taken off the elements of a row: their largest, but for a row of which nothing counts. */
__device__ static inline float base_of(float largest) { return largest == MINUS_INF ? 0.0f : largest; }

template <int N> __device__ inline float largest_of(const float (&z)[N]) {
  float most = z[0];
#pragma unroll
  for (int j = 1; j < N; ++j) most = fmaxf(most, z[j]);
  return most;
}

template <int N> __device__ inline float sum_of(const float (&z)[N]) {
  if constexpr (N == 1) {
    return z[0];
  } else {
    float half[N / 2];
#pragma unroll
    for (int j = 0; j < N / 2; ++j) half[j] = z[2 * j] + z[2 * j + 1];
    return sum_of<N / 2>(half);
  }
}

/* Which columns of a row a thread has: from `first` on N of every `step`. */
template <int N> struct columns {
  int64_t first, step;
  __device__ columns(const team &t, const cluster &cl)
      : first((int64_t)(cl.rank * t.threads + t.rank) * N), step((int64_t)cl.size * t.threads * N) {}
};

/* The row of a team, in a launch whose first row is `first`. */
__device__ static inline int64_t row_of_team(int64_t first, const team &t, const cluster &cl) {
  return first + (int64_t)(blockIdx.x / cl.size) * t.count + t.index;
}

#endif
