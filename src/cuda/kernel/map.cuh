/* Elementwise work: rows of packs, or of single elements where they are not aligned. */
#ifndef TIGON_CUDA_KERNEL_MAP_CUH
#define TIGON_CUDA_KERNEL_MAP_CUH

#include "cuda/map.h"
#include "cuda/kernel/element.cuh"

/* A thread's row and the first of its elements; of them `each` are the thread's, n side by side. */
struct map_place {
  int64_t row, first;
};
__device__ static inline map_place map_place_of(const map_walk &walk, unsigned block, int each, int n) {
  const int index = (int)threadIdx.x >> walk.team_bits, rank = (int)threadIdx.x & (walk.team - 1);
  const unsigned group = walk.tiles == 1 ? block
                         : walk.one_row  ? 0
                                         : block / walk.tiles,
                 tile = block - group * walk.tiles;
  return map_place{((int64_t)group << (MAP_BITS - walk.team_bits)) + index,
                   ((int64_t)tile * each << walk.team_bits) + rank * n};
}

/* Chunks of outputs of those of inputs: f(in, out) makes an element of each output of one of each input. */
template <class T, int N, int IN, int OUT, class F>
__device__ inline void map_packs(const pack<T, N> (&in)[IN], pack<T, N> (&out)[OUT], F f) {
  float all[OUT][N], wide[IN][N];
#pragma unroll
  for (int i = 0; i < IN; ++i) unpack<T, N>(in[i], wide[i]);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    float a[IN], b[OUT];
#pragma unroll
    for (int i = 0; i < IN; ++i) a[i] = wide[i][j];
    f(a, b);
#pragma unroll
    for (int i = 0; i < OUT; ++i) all[i][j] = b[i];
  }
#pragma unroll
  for (int i = 0; i < OUT; ++i) out[i] = packed<T, N>(all[i]);
}

/* A pack of every tensor, all loaded before the first store, so that outputs may lie over inputs. */
template <class T, int IN, int OUT, class F> __device__ inline void map_plain_rows(const map_plain &p, F f) {
  constexpr int N = pack<T>::N;
  const int first = (int)(blockIdx.x * MAP_THREADS + threadIdx.x);
  if (first >= p.packs) return;
  const auto at = [&](int i) { return (T *)((uint4 *)p.data[i] + ((int)blockIdx.y * p.pitch[i] + first)); };
  pack<T, N> x[IN], y[OUT];
#pragma unroll
  for (int i = 0; i < IN; ++i) x[i] = load_pack<T, N>(at(i));
  map_packs<T, N>(x, y, f);
#pragma unroll
  for (int i = 0; i < OUT; ++i) store_pack<T, N>(at(IN + i), y[i]);
}

/* The same of any rows. N: a pack's elements where all rows begin on 16 bytes, else 1, of which a thread has MAP_ANY. */
template <class T, int N, int IN, int OUT, class F>
__device__ inline void map_any_rows(const tigon_map_problem &p, const map_walk &walk, F f) {
  constexpr int EACH = N == 1 ? MAP_ANY : 1;
  const map_place at = map_place_of(walk, blockIdx.x, EACH * N, N);
  if (at.row >= p.space.rows) return;
  const int64_t left = p.cols - at.first;
  const int step = walk.team * N;
  const T *from[IN];
  T *to[OUT];
#pragma unroll
  for (int i = 0; i < IN; ++i) from[i] = row_of<T>(p.space, p.in[i], at.row) + at.first;
#pragma unroll
  for (int i = 0; i < OUT; ++i) to[i] = row_of<T>(p.space, p.out[i], at.row) + at.first;
  pack<T, N> x[EACH][IN];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    if (k * step + N > left) continue;
#pragma unroll
    for (int i = 0; i < IN; ++i) x[k][i] = load_pack<T, N>(from[i] + k * step);
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    if (k * step + N > left) continue;
    pack<T, N> y[OUT];
    map_packs<T, N>(x[k], y, f);
#pragma unroll
    for (int i = 0; i < OUT; ++i) store_pack<T, N>(to[i] + k * step, y[i]);
  }
  if constexpr (N > 1) { /* the rest of the row, less than a pack */
#pragma unroll 1
    for (int k = 0; k < EACH && k * step < left; ++k)
#pragma unroll 1
      for (int c = k * step; k * step + N > left && c < left; ++c) {
        float a[IN], b[OUT];
#pragma unroll
        for (int i = 0; i < IN; ++i) a[i] = to_f32(from[i][c]);
        f(a, b);
#pragma unroll
        for (int i = 0; i < OUT; ++i) to[i][c] = from_f32<T>(b[i]);
      }
  }
}

/* The kernels of a formula. `blocks`: on an SM at least, so that enough loads are on their way. MAP_ROWS has its own body for what
 * is not plain: T, N, p and walk are its names. */
#define MAP_PLAIN(name, blocks, inputs, outputs, formula)                                     \
  KERNEL_BY_DTYPE(name##_plain, (MAP_THREADS, blocks), (const __grid_constant__ map_plain p), \
                  map_plain_rows<T, inputs, outputs>(p, formula))
#define MAP_ROWS(name, blocks, ...)                                                                     \
  KERNEL_BY_DTYPE(name##_wide, (MAP_THREADS, blocks),                                                   \
                  (const __grid_constant__ tigon_map_problem p, const __grid_constant__ map_walk walk), \
                  constexpr int N = pack<T>::N;                                                         \
                  __VA_ARGS__)                                                                          \
  KERNEL_BY_DTYPE(name##_any, (MAP_THREADS, 4),                                                         \
                  (const __grid_constant__ tigon_map_problem p, const __grid_constant__ map_walk walk), \
                  constexpr int N = 1;                                                                  \
                  __VA_ARGS__)
#define MAP_KERNELS(name, blocks, inputs, outputs, formula) \
  MAP_PLAIN(name, blocks, inputs, outputs, formula)         \
  MAP_ROWS(name, blocks, map_any_rows<T, N, inputs, outputs>(p, walk, formula))

#endif
