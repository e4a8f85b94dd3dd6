/* As many blocks as the device holds go over all elements, so that the few of a factor of 1 are over at once. */
#include "cuda/scale.h"
#include "cuda/kernel/element.cuh"
#include "problem/map.h"

template <class T, int N> __device__ inline void scale_pack(const pack<T, N> &x, T *y, float factor) {
  float v[N];
  unpack<T, N>(x, v);
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] *= factor;
  store_pack<T, N>(y, packed<T, N>(v));
}

template <class T, int N> __device__ inline void scale_rows(const tigon_map_problem &p) {
  const float factor = *p.numbers.factor;
  if (tigon_map_is_done(&p, factor)) return;
  const int64_t items = (p.cols + N - 1) / N, total = p.space.rows * items, step = (int64_t)gridDim.x * SCALE_THREADS;
  for (int64_t first = (int64_t)blockIdx.x * SCALE_THREADS + threadIdx.x; first < total; first += SCALE_EACH * step) {
    pack<T, N> x[SCALE_EACH];
    T *to[SCALE_EACH];
#pragma unroll
    for (int k = 0; k < SCALE_EACH; ++k) {
      const int64_t item = first + k * step, row = p.space.rows == 1 ? 0 : item / items, col = (item - row * items) * N;
      to[k] = NULL;
      if (item >= total) continue;
      const T *from = row_of<T>(p.space, p.in[0], row) + col;
      T *y = row_of<T>(p.space, p.out[0], row) + col;
      if (col + N <= p.cols)
        x[k] = load_pack<T, N>(from), to[k] = y;
      else /* the rest of a row, less than a pack */
        for (int64_t j = 0; j < p.cols - col; ++j) y[j] = from_f32<T>(to_f32(from[j]) * factor);
    }
#pragma unroll
    for (int k = 0; k < SCALE_EACH; ++k)
      if (to[k]) scale_pack<T, N>(x[k], to[k], factor);
  }
}

#define SCALE_KERNEL(name, lanes)                                                                     \
  KERNEL_BY_DTYPE(name, (SCALE_THREADS, SCALE_BLOCKS), (const __grid_constant__ tigon_map_problem p), \
                  scale_rows<T, lanes>(p))
SCALE_KERNEL(scale_fwd_wide, pack<T>::N)
SCALE_KERNEL(scale_fwd_any, 1)
