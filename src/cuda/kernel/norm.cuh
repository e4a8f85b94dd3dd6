/* Code that the kernels of the norms share. */
#ifndef TIGON_CUDA_KERNEL_NORM_CUH
#define TIGON_CUDA_KERNEL_NORM_CUH

#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/element.cuh"
#include "cuda/norm.h"

enum norm_kind { NORM_RMS, NORM_GATED, NORM_ADD_RMS, NORM_LAYER, NORM_MODULATED };

enum { NORM_STRIP = 16 }; /* steps of a walked row in one f32 sum; these sums are added up in f64 */

/* Calls f(i, part) for i = first, first + step, ... below `end`. f adds the terms of element i to `part`. The f32 parts of NORM_STRIP steps
 * each are added up in `all`. */
template <int VALUES, class F>
__device__ inline void norm_strips(int64_t first, int64_t end, int64_t step, double (&all)[VALUES], F f) {
  for (int64_t c = first, stop; c < end; c = stop) {
    float part[VALUES] = {0};
    stop = c + NORM_STRIP * step;
#pragma unroll 4
    for (int64_t i = c; i < (stop < end ? stop : end); i += step) f(i, part);
#pragma unroll
    for (int v = 0; v < VALUES; ++v) all[v] += (double)part[v];
  }
}

/* Columns c .. c + N - 1 of a vector; `absent` without one. N is an aligned pack's elements, or 1. */
template <class T, int N>
__device__ inline void norm_vector(const void *v, tigon_dtype dtype, float absent, int64_t c, float (&to)[N]) {
  if (!v) {
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = absent;
  } else if constexpr (N == 1) {
    to[0] = load_any(v, c, dtype);
  } else {
    load_vector<T>(v, dtype, c, to);
  }
}

/* Weights: w + offset; 1 without w. */
template <class T, int N>
__device__ inline void norm_weights(const void *w, tigon_dtype dtype, float offset, int64_t c, float (&to)[N]) {
  norm_vector<T>(w, dtype, 1, c, to);
  if (!w) return;
#pragma unroll
  for (int j = 0; j < N; ++j) to[j] += offset;
}

/* Row r of a tensor of T. PLAIN: all rows are at one pitch. That saves divisions, for which a loop over rows has no registers. */
template <class T, bool PLAIN>
__device__ inline T *norm_row_at(const tigon_row_space &space, const tigon_rows &t, int64_t r) {
  return PLAIN ? (T *)t.data + r * t.pitch[2] : row_of<T>(space, t, r);
}

/* Row `group` of scale, shift or their gradients; NULL if the tensor is absent. */
__device__ static inline void *norm_group_row(const tigon_row_space &groups, const tigon_rows &t, tigon_dtype dtype,
                                              int64_t group) {
  return tigon_row(&groups, &t, dtype == TIGON_F32 ? 4 : 2, group);
}

/* N elements from at on, one or a pack. */
template <class T, int N> __device__ inline void norm_load(const T *at, float (&to)[N]) {
  if constexpr (N == 1)
    to[0] = to_f32(*at);
  else
    unpack(load_pack(at), to);
}
template <class T, int N> __device__ inline void norm_store(T *at, const float (&from)[N]) {
  if constexpr (N == 1)
    *at = from_f32<T>(from[0]);
  else
    store_pack(at, packed<T>(from));
}

/* Whether xhat is rounded to T before it is multiplied by w. */
template <class T> __device__ inline bool norm_rounds(tigon_casting casting) {
  return sizeof(T) < 4 && casting != TIGON_CASTING_GEMMA;
}

template <class T> __device__ inline float norm_xhat(float v, float rstd, bool rounds) {
  return rounds ? rounded<T>(v * rstd) : v * rstd;
}
/* Rounds a pack of xhat. One conversion rounds two elements. */
template <class T, int N> __device__ inline void norm_round(float (&xhat)[N], bool rounds) {
  float to[N];
  unpack(packed<T>(xhat), to);
#pragma unroll
  for (int j = 0; j < N; ++j) xhat[j] = rounds ? to[j] : xhat[j];
}

/* 1 / sqrt(v + rest) with one rounding. v is the f32 value of the sum, and rest its rounding error. The approximate r is corrected by the
 * difference of (v + rest) r^2 from 1. */
__device__ static inline float norm_rsqrt(float v, float rest) {
  const float r = rsqrtf(v), h = v * r, left = fmaf(-h, r, 1) - r * fmaf(rest, r, fmaf(v, r, -h));
  return v > 0x1p-126f && v < 0x1p127f ? fmaf(0.5f * r, left, r) : r;
}

/* 1 / sqrt(sum / count + eps). The rounding errors of the quotient and of the sum are added back (Dekker's sum of two). So a quotient by the
 * approximate reciprocal is accurate enough. */
__device__ static inline float norm_rsqrt_mean(float sum, float count, float eps) {
  const float share = __fdividef(1, count), quotient = sum * share, mean = quotient + eps, back = mean - quotient;
  const float rest = (quotient - (mean - back)) + (eps - back);
  return norm_rsqrt(mean, fmaf(fmaf(-quotient, count, sum), share, rest));
}

/* ---- moments ---- */

/* Adds d = x - center and d^2 of a pack. */
template <class T> __device__ inline void norm_add_pack(const uint4 &bits, float center, float (&sums)[2]) {
  constexpr int N = pack<T>::N;
  float v[N], part = 0, squares = 0;
  unpack(pack_of<T>(bits), v);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    const float d = v[j] - center;
    part += d, squares = fmaf(d, d, squares);
  }
  sums[0] += part, sums[1] += squares;
}

/* The same for a thread's elements in memory. */
template <class T, int N>
__device__ inline void norm_add_differences(const T *x, float center, int64_t first, int64_t end, int64_t step,
                                            double (&all)[2]) {
  norm_strips(first, end, step, all, [&](int64_t i, float(&part)[2]) {
    float v[N];
    norm_load<T>(x + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float d = v[j] - center;
      part[0] += d, part[1] = fmaf(d, d, part[1]);
    }
  });
}

/* The mean is center + rest. x - center is exact where x is near the mean, even for a large mean. */
struct norm_moments {
  float center, rest, variance;
};

/* The center from which differences are taken. With an Inf or a NaN in the row, the plain sum is the mean. */
__device__ static inline float norm_center(float mean) { return isfinite(mean) ? mean : 0; }

/* Moments from the sums of d and of d^2, d = x - center, over `count` elements. They lose no digits if the center is near the mean. */
__device__ static inline norm_moments norm_moments_of(float center, float sum, float squares, float count) {
  const float rest = sum / count, variance = squares / count - rest * rest;
  return norm_moments{center, rest, variance < 0 ? 0 : variance};
}

/* Whether the center is too far from the mean for these sums. */
__device__ static inline bool norm_far(float sum, float squares, float count) {
  return 5 * sum * sum > squares * count;
}

#endif
