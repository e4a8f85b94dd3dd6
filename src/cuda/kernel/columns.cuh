/* The engine of work on rows with vectors of columns: a thread has a pack of columns, whose vectors and sums are in its registers, and
 * goes down the rows. */
#ifndef TIGON_CUDA_KERNEL_COLUMNS_CUH
#define TIGON_CUDA_KERNEL_COLUMNS_CUH

#include "cuda/columns.h"
#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/team.cuh"

/* A thread's columns, and the first of its rows. */
struct columns_place {
  int64_t row, step, col;
  bool inside;
};
template <int N> __device__ inline columns_place columns_place_of(const columns_walk &walk, int64_t cols) {
  const int rank = (int)threadIdx.x & ((1 << walk.team_bits) - 1), teams = COLUMNS_THREADS >> walk.team_bits;
  const int64_t col = (((int64_t)blockIdx.x << walk.team_bits) + rank) * N;
  return columns_place{(int64_t)blockIdx.y * teams + (threadIdx.x >> walk.team_bits), (int64_t)gridDim.y * teams, col,
                       col < cols};
}

/* A vector's columns from `col` on, 0 without it: a pack, or any. */
template <class T, int N> __device__ inline void load_columns(const tigon_vector &v, int64_t col, float (&to)[N]) {
#pragma unroll
  for (int j = 0; j < N; ++j) to[j] = 0;
  if (!v.data) return;
  if constexpr (N == pack<T>::N)
    load_vector<T>(v.data, v.dtype, col, to);
  else
    load_any(v.data, col, v.dtype, to);
}

/* Row r, of a tensor whose rows are at one pitch where threads have packs. */
template <class T, int N>
__device__ inline T *columns_row(const tigon_row_space &space, const tigon_rows &t, int64_t r) {
  return N > 1 ? (T *)t.data + r * t.pitch[2] : row_of<T>(space, t, r);
}

/* y of x, by y = f(x, number, vectors). */
template <class T, int N, class F>
__device__ inline void columns_fwd(const tigon_columns_problem &p, const columns_walk &walk, F f) {
  constexpr int ROWS = COLUMNS_FWD_ROWS;
  const columns_place at = columns_place_of<N>(walk, p.cols);
  if (!at.inside) return;
  float number = 0, first[N], second[N];
  for (int64_t r = at.row; r < p.space.rows; r += ROWS * at.step) {
    pack<T, N> in[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; ++k)
      if (r + k * at.step < p.space.rows)
        in[k] = load_pack<T, N>(columns_row<T, N>(p.space, p.in[0], r + k * at.step) + at.col);
    if (r == at.row) { /* while the rows are on their way */
      number = load_any(p.number.data, 0, p.number.dtype);
      load_columns<T, N>(p.vector[0], at.col, first);
      load_columns<T, N>(p.vector[1], at.col, second);
    }
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
      if (r + k * at.step >= p.space.rows) break;
      float x[N], y[N];
      unpack<T, N>(in[k], x);
#pragma unroll
      for (int j = 0; j < N; ++j) y[j] = f(x[j], number, first[j], second[j]);
      store_pack<T, N>(columns_row<T, N>(p.space, p.out, r + k * at.step) + at.col, packed<T, N>(y));
    }
  }
}

/* ---- backward ---- */

/* One element's terms of the gradients of the vectors and of the number. */
struct columns_terms {
  float first, second, number;
};

/* dx of dy and x, by dx = f(dy, x, number, first, terms), and what is added to the sums. */
template <class T, int N, class F>
__device__ inline pack<T, N> columns_chunk(const pack<T, N> &from_dy, const pack<T, N> &from_x, float number,
                                           const float (&first)[N], float (&sums)[2][N], float &total, F f) {
  float dy[N], x[N], dx[N], part = 0;
  unpack<T, N>(from_dy, dy);
  unpack<T, N>(from_x, x);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    columns_terms terms;
    dx[j] = f(dy[j], x[j], number, first[j], terms);
    sums[0][j] += terms.first;
    sums[1][j] += terms.second;
    part += terms.number;
  }
  total += part;
  return packed<T, N>(dx);
}

/* The block's sum, in one order. */
__device__ static inline void store_word(float sum, float *to) {
  __shared__ team_space<1> space;
  float all[1] = {sum};
  const team block = team_of(COLUMNS_THREADS);
  team_all<op_sum>(block, space, 0, all);
  if (threadIdx.x == 0) *to = all[0];
}

template <class T, int N, class F>
__device__ inline void columns_bwd(const tigon_columns_problem &p, const columns_walk &walk, F f) {
  constexpr int ROWS = sizeof(T) == 4 ? 2 : 4; /* on their way at once, by measurement */
  const columns_place at = columns_place_of<N>(walk, p.cols);
  const float number = load_any(p.number.data, 0, p.number.dtype);
  float first[N], sums[2][N] = {}, total = 0;
  if (at.inside) load_columns<T, N>(p.vector[0], at.col, first);
  for (int64_t r = at.row; at.inside && r < p.space.rows; r += ROWS * at.step) {
    pack<T, N> dy[ROWS], x[ROWS];
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
      if (r + k * at.step >= p.space.rows) break;
      dy[k] = load_pack<T, N>(columns_row<T, N>(p.space, p.in[0], r + k * at.step) + at.col);
      x[k] = load_pack<T, N>(columns_row<T, N>(p.space, p.in[1], r + k * at.step) + at.col);
    }
#pragma unroll
    for (int k = 0; k < ROWS; ++k) {
      if (r + k * at.step >= p.space.rows) break;
      store_pack<T, N>(columns_row<T, N>(p.space, p.out, r + k * at.step) + at.col,
                       columns_chunk<T, N>(dy[k], x[k], number, first, sums, total, f));
    }
  }
  column_sum_may_begin();
  if (!walk.words) return;
  store_word(total, &walk.words[(int64_t)blockIdx.y * gridDim.x + blockIdx.x]);
  float *slab = p.slabs + 2 * at.row * p.cols + at.col;
#pragma unroll
  for (int j = 0; at.inside && j < N; ++j) slab[j] = sums[0][j], slab[p.cols + j] = sums[1][j];
}

/* The kernels of an operator's two formulas, functions of the dtype T. */
#define COLUMNS_BODY(name, blocks, ...)                                                                         \
  KERNEL_BY_DTYPE(name, (COLUMNS_THREADS, blocks),                                                              \
                  (const __grid_constant__ tigon_columns_problem p, const __grid_constant__ columns_walk walk), \
                  __VA_ARGS__)
#define COLUMNS_KERNELS(op, forward, backward)                                                      \
  COLUMNS_BODY(op##_fwd_wide, COLUMNS_FWD_BLOCKS, columns_fwd<T, pack<T>::N>(p, walk, forward<T>))  \
  COLUMNS_BODY(op##_fwd_any, COLUMNS_FWD_BLOCKS, columns_fwd<T, 1>(p, walk, forward<T>))            \
  COLUMNS_BODY(op##_bwd_wide, COLUMNS_BWD_BLOCKS, columns_bwd<T, pack<T>::N>(p, walk, backward<T>)) \
  COLUMNS_BODY(op##_bwd_any, COLUMNS_BWD_BLOCKS, columns_bwd<T, 1>(p, walk, backward<T>))

#endif
