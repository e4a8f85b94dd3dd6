/* rope: (u, v) -> (u c - v s, v c + u s). A thread reads and writes the same places, so that it may work in place. */
#include "cuda/kernel/chunk.cuh"
#include "cuda/rope.h"

/* cos or sin of N pairs. */
template <class T, int N>
__device__ inline void load_table(const tigon_rope_problem &p, const void *table, int64_t at, float (&to)[N]) {
  if constexpr (N == 1)
    to[0] = load_any(table, at, p.table_dtype);
  else
    load_vector<T>(table, p.table_dtype, at, to);
}

template <class T> struct rope_heads {
  const T *x[ROPE_HEADS];
  T *y[ROPE_HEADS]; /* NULL: no more heads */
};
template <class T>
__device__ inline rope_heads<T> heads_of(const tigon_rope_problem &p, const rope_walk &w, int64_t b, int64_t t,
                                         int64_t group) {
  rope_heads<T> of;
#pragma unroll
  for (int j = 0; j < ROPE_HEADS; ++j) {
    const int64_t h = group + j * w.groups, of_k = h - p.q.heads;
    of.x[j] = NULL, of.y[j] = NULL;
    if (of_k >= p.k.heads) continue;
    of.x[j] = (const T *)(of_k < 0 ? tigon_head(&p.q, sizeof(T), b, t, h) : tigon_head(&p.k, sizeof(T), b, t, of_k));
    of.y[j] = (T *)(of_k < 0 ? tigon_head(&p.q_out, sizeof(T), b, t, h) : tigon_head(&p.k_out, sizeof(T), b, t, of_k));
  }
  return of;
}

template <class T, int N, bool HALF>
__device__ inline void turn_pairs(const tigon_rope_problem &p, const rope_heads<T> &heads, int64_t pair, int64_t row,
                                  float sign, bool legal) {
  /* Pairs lie in two chunks: of their first and their second elements, or one after the other. */
  const int64_t first = HALF ? pair : 2 * pair, second = HALF ? pair + p.rotary_dim / 2 : 2 * pair + N;
  chunk<T, N> x[ROPE_HEADS][2];
#pragma unroll
  for (int j = 0; j < ROPE_HEADS; ++j) {
    if (!heads.y[j]) continue;
    x[j][0] = load_chunk<T, N>(heads.x[j] + first);
    x[j][1] = load_chunk<T, N>(heads.x[j] + second);
  }
  float c[N], s[N];
  if (legal) {
    load_table<T, N>(p, p.cos, row + pair, c);
    load_table<T, N>(p, p.sin, row + pair, s);
  }
#pragma unroll
  for (int i = 0; i < N; ++i) {
    c[i] = legal ? c[i] : __int_as_float(0x7fffffff);
    s[i] = legal ? sign * s[i] : __int_as_float(0x7fffffff);
  }
#pragma unroll
  for (int j = 0; j < ROPE_HEADS; ++j) {
    if (!heads.y[j]) continue;
    float a[2][N], out[2][N];
    unpack_chunk<T, N>(x[j][0], a[0]);
    unpack_chunk<T, N>(x[j][1], a[1]);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      constexpr int STEP = HALF ? 1 : 2, OTHER = HALF ? N : 1;
      const int at = i * STEP, beside = at + OTHER;
      const float u = a[at / N][at % N], v = a[beside / N][beside % N];
      out[at / N][at % N] = fmaf(-v, s[i], u * c[i]);
      out[beside / N][beside % N] = fmaf(u, s[i], v * c[i]);
    }
    store_chunk<T, N>(heads.y[j] + first, pack_chunk<T, N>(out[0]));
    store_chunk<T, N>(heads.y[j] + second, pack_chunk<T, N>(out[1]));
  }
}

/* What is not turned. */
template <class T, int N> __device__ inline void copy_rest(const rope_heads<T> &heads, int64_t at, bool legal) {
  float nan[N];
#pragma unroll
  for (int i = 0; i < N; ++i) nan[i] = __int_as_float(0x7fffffff);
#pragma unroll
  for (int j = 0; j < ROPE_HEADS; ++j) {
    if (!heads.y[j]) continue;
    if (!legal)
      store_chunk<T, N>(heads.y[j] + at, pack_chunk<T, N>(nan));
    else if (heads.x[j] != heads.y[j])
      store_chunk<T, N>(heads.y[j] + at, load_chunk<T, N>(heads.x[j] + at));
  }
}

template <class T, int N, bool HALF> __device__ inline void turn(const tigon_rope_problem &p, const rope_walk &w) {
  const int64_t i = (int64_t)blockIdx.x * ROPE_THREADS + threadIdx.x, of_token = w.groups * w.pieces;
  auto divide = [&](int64_t a, int64_t by) { return w.few ? (int64_t)((unsigned)a / (unsigned)by) : a / by; };
  const int64_t token = divide(i, of_token), at = i - token * of_token;
  const int64_t group = divide(at, w.pieces), piece = at - group * w.pieces;
  const int64_t b = divide(token, p.tokens), t = token - b * p.tokens;
  if (b >= p.batch) return;
  const int64_t position = p.positions ? load_index(p.positions, b * p.position_pitch + t, p.position_dtype) : t;
  const bool legal = position >= 0 && position < p.table_rows;
  if (!legal && at == 0 && p.error_flag) *p.error_flag = 1;
  const rope_heads<T> heads = heads_of<T>(p, w, b, t, group);
  if (piece < w.pairs)
    turn_pairs<T, N, HALF>(p, heads, piece * N, b * p.table_batch_pitch + position * p.table_pitch, w.sign, legal);
  else
    copy_rest<T, N>(heads, p.rotary_dim + (piece - w.pairs) * N, legal);
}

#define KERNEL(name, n, half)                                                                          \
  KERNEL_BY_DTYPE(rope_##name, (ROPE_THREADS, 3),                                                      \
                  (const __grid_constant__ tigon_rope_problem p, const __grid_constant__ rope_walk w), \
                  turn<T, n, half>(p, w))

KERNEL(half_wide, pack<T>::N, true)
KERNEL(half_any, 1, true)
KERNEL(interleaved_wide, pack<T>::N, false)
KERNEL(interleaved_any, 1, false)
