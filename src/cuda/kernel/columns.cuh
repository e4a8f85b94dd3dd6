/* The engine of work on rows with vectors of columns. A thread has a pack of columns, whose vectors and sums are in its registers. Forward
 * it has one row, backward it goes down the rows. */
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
  const int64_t block = (int64_t)blockIdx.z * gridDim.y + blockIdx.y;
  return columns_place{block * teams + (threadIdx.x >> walk.team_bits), walk.slabs, col, col < cols};
}

/* A vector's columns from `col` on, on their way: a pack, or one; 0 without it. To convert them is to wait. */
template <class T, int N> struct columns_vector {
  uint4 bits[N == 1 ? 1 : N / 4]; /* a dtype of 16 bits has the first */
  __device__ columns_vector(const tigon_vector &v, int64_t col) : bits{} {
    if (!v.data) return;
    if constexpr (N == 1) {
      bits[0].x = load_raw(v.data, col, v.dtype);
    } else if (v.dtype == TIGON_F32) {
#pragma unroll
      for (int i = 0; i < N / 4; ++i) bits[i] = __ldg((const uint4 *)((const float *)v.data + col) + i);
    } else {
      bits[0] = __ldg((const uint4 *)((const T *)v.data + col));
    }
  }
  __device__ void to(float (&to)[N], tigon_dtype dtype) const {
    if constexpr (N == 1) {
      to[0] = value_of(bits[0].x, dtype);
    } else if (dtype == TIGON_F32) {
#pragma unroll
      for (int i = 0; i < N / 4; ++i) unpack(pack_of<float>(bits[i]), *(float(*)[4])(to + 4 * i));
    } else {
      unpack(pack_of<T>(bits[0]), to);
    }
  }
};

/* A thread's elements of one row after the other, the last one again and again. Where it has packs, rows are at one pitch: an address is
 * enough. */
template <class T, int N> struct columns_cursor {
  T *at;
  const int64_t apart;
  __device__ columns_cursor(const tigon_row_space &, const tigon_rows &t, const columns_place &place)
      : at((T *)t.data + place.row * t.pitch[2] + place.col), apart(place.step * t.pitch[2]) {}
  __device__ T *next(bool more) {
    T *now = at;
    at += more ? apart : 0;
    return now;
  }
};
template <class T> struct columns_cursor<T, 1> {
  const tigon_row_space &space;
  const tigon_rows &rows;
  columns_place place;
  __device__ columns_cursor(const tigon_row_space &s, const tigon_rows &t, const columns_place &first)
      : space(s), rows(t), place(first) {}
  __device__ T *next(bool more) {
    T *row = row_of<T>(space, rows, place.row);
    place.row += more ? place.step : 0;
    return row + place.col;
  }
};

/* y of x, by y = f(x, number, vectors), of as many rows as a thread has. All loads are on their way before the first is waited for. */
template <class T, int N, int ROWS, class F>
__device__ inline void columns_fwd(const tigon_columns_problem &p, const columns_walk &walk, F f) {
  const columns_place at = columns_place_of<N>(walk, p.cols);
  if (!at.inside || at.row >= p.space.rows) return;
  const auto has = [&](int i) { return i == 0 || (i < ROWS && at.row + i * walk.slabs < p.space.rows); };
  columns_cursor<T, N> of_x(p.space, p.in[0], at), of_y(p.space, p.out, at);
  pack<T, N> in[ROWS];
#pragma unroll
  for (int i = 0; i < ROWS; ++i) in[i] = load_pack<T, N>(of_x.next(has(i + 1)));
  const unsigned raw = load_raw(p.number.data, 0, p.number.dtype);
  const columns_vector<T, N> of_first(p.vector[0], at.col), of_second(p.vector[1], at.col);
  float first[N], second[N];
  of_first.to(first, p.vector[0].dtype);
  of_second.to(second, p.vector[1].dtype);
  const float number = value_of(raw, p.number.dtype);
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    if (!has(i)) break;
    float x[N], y[N];
    unpack<T, N>(in[i], x);
#pragma unroll
    for (int j = 0; j < N; ++j) y[j] = f(x[j], number, first[j], second[j]);
    store_pack<T, N>(of_y.next(true), packed<T, N>(y));
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

/* In words of 16 bytes where there are several: single ones would write a sector of memory eight times. */
template <int N> __device__ inline void store_floats(float *to, const float (&of)[N]) {
  if constexpr (N == 1) *to = of[0];
#pragma unroll
  for (int j = 0; j + 4 <= N; j += 4) *(float4 *)(to + j) = make_float4(of[j], of[j + 1], of[j + 2], of[j + 3]);
}

/* The next row of a thread is on its way while one is worked on. */
template <class T, int N, class F>
__device__ inline void columns_bwd(const tigon_columns_problem &p, const columns_walk &walk, F f) {
  const columns_place at = columns_place_of<N>(walk, p.cols);
  float number, first[N], sums[2][N] = {}, total = 0;
  columns_cursor<T, N> of_dy(p.space, p.in[0], at), of_x(p.space, p.in[1], at), of_dx(p.space, p.out, at);
  pack<T, N> dy[2], x[2];
  const auto fetch = [&](int to, bool more) {
    dy[to] = load_pack<T, N>(of_dy.next(more)), x[to] = load_pack<T, N>(of_x.next(more));
  };
  const auto work = [&](int k) {
    store_pack<T, N>(of_dx.next(true), columns_chunk<T, N>(dy[k], x[k], number, first, sums, total, f));
  };
  int64_t left = at.inside ? p.space.rows - at.row : 0;
  if (left > 0) fetch(0, left > walk.slabs);
  const unsigned raw = load_raw(p.number.data, 0, p.number.dtype);
  const columns_vector<T, N> of_first(at.inside ? p.vector[0] : tigon_vector{}, at.col);
  number = value_of(raw, p.number.dtype);
  of_first.to(first, p.vector[0].dtype);
  for (; left > walk.slabs; left -= 2 * walk.slabs) {
    fetch(1, left > 2 * walk.slabs);
    work(0);
    fetch(0, left > 3 * walk.slabs);
    work(1);
  }
  if (left > 0) work(0);
  next_kernel_may_begin();
  if (!walk.words) return;
  store_word(total, &walk.words[(int64_t)blockIdx.y * gridDim.x + blockIdx.x]);
  if (!at.inside) return;
  float *slab = p.slabs + 2 * at.row * p.cols + at.col;
  store_floats(slab, sums[0]);
  store_floats(slab + p.cols, sums[1]);
}

/* The kernels of an operator's two formulas, functions of the dtype T. */
#define COLUMNS_BODY(name, blocks, ...)                                                                         \
  KERNEL_BY_DTYPE(name, (COLUMNS_THREADS, blocks),                                                              \
                  (const __grid_constant__ tigon_columns_problem p, const __grid_constant__ columns_walk walk), \
                  __VA_ARGS__)
#define COLUMNS_KERNELS(op, forward, backward)                                                                    \
  COLUMNS_BODY(op##_fwd_wide, SM_THREADS / COLUMNS_THREADS, columns_fwd<T, pack<T>::N, 1>(p, walk, forward<T>))   \
  COLUMNS_BODY(op##_fwd_tall, COLUMNS_TALL_BLOCKS, columns_fwd<T, pack<T>::N, COLUMNS_ROWS>(p, walk, forward<T>)) \
  COLUMNS_BODY(op##_fwd_any, SM_THREADS / COLUMNS_THREADS, columns_fwd<T, 1, 1>(p, walk, forward<T>))             \
  COLUMNS_BODY(op##_bwd_wide, COLUMNS_BWD_BLOCKS, columns_bwd<T, pack<T>::N>(p, walk, backward<T>))               \
  COLUMNS_BODY(op##_bwd_any, COLUMNS_BWD_BLOCKS, columns_bwd<T, 1>(p, walk, backward<T>))

#endif
