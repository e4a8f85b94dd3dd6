/* rope: (u, v) -> (u c - v s, v c + u s). A thread reads and writes the same places, so that it may work in place. */
#include "cuda/kernel/element.cuh"
#include "cuda/rope.h"

/* cos or sin of N pairs. */
template <class T, int N>
__device__ inline void load_table(const void *table, tigon_dtype dtype, int64_t at, float (&to)[N]) {
  if constexpr (N == 1)
    to[0] = load_any(table, at, dtype);
  else
    load_vector<T>(table, dtype, at, to);
}

/* A token's row of the tables. */
template <class I> struct rope_row {
  I at;
  template <class T, int N, class P> __device__ void load(const P &p, I pair, float (&c)[N], float (&s)[N]) const {
    load_table<T, N>(p.cos, p.table_dtype, at + pair, c);
    load_table<T, N>(p.sin, p.table_dtype, at + pair, s);
  }
  __device__ bool find(const tigon_rope_problem &p, int64_t b, int64_t t) {
    const int64_t position = p.positions ? load_index(p.positions, b * p.position_pitch + t, p.position_dtype) : t;
    at = b * p.table_batch_pitch + position * p.table_pitch;
    return position >= 0 && position < p.table_rows;
  }
};
/* Its rows, of each axis; cos and sin may be complex numbers. A pair's numbers come by themselves: of interleaved sections
 * neighbours are of three rows, and three vectors for one take twice the time. */
struct rope_rows {
  int64_t at[TIGON_ROPE_AXES];
  template <class T, int N>
  __device__ void load(const tigon_rope_problem &p, int64_t pair, float (&c)[N], float (&s)[N]) const {
    if (p.table_dtype == TIGON_F32)
      pick<float>(p, pair, c, s);
    else
      pick<T>(p, pair, c, s);
  }
  template <class E, int N>
  __device__ void pick(const tigon_rope_problem &p, int64_t pair, float (&c)[N], float (&s)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int axis = tigon_rope_axis(p.pairs_of, p.axes, pair + i);
      const int64_t row = axis == 0 ? at[0] : axis == 1 ? at[1] : at[2], from = row + (pair + i) * p.table_step;
      c[i] = to_f32(__ldg((const E *)p.cos + from));
      s[i] = to_f32(__ldg((const E *)p.sin + from));
    }
  }
  __device__ bool find(const tigon_rope_problem &p, int64_t b, int64_t t) {
    bool legal = true;
#pragma unroll
    for (int axis = 0; axis < TIGON_ROPE_AXES; ++axis) {
      if (axis >= p.axes) break;
      const int64_t id = axis * p.position_axis_pitch + b * p.position_pitch + t;
      const int64_t position = p.positions ? load_index(p.positions, id, p.position_dtype) : t;
      legal = legal && position >= 0 && position < p.table_rows;
      at[axis] = axis * p.table_axis_pitch + b * p.table_batch_pitch + position * p.table_pitch;
    }
    return legal;
  }
};

/* The numbers of the pairs of a block's tokens, [tokens, pairs] of cos and then as many of sin. */
extern __shared__ __align__(16) float rope_held[];
struct rope_shared {
  int at, pairs, count; /* where the thread's token begins; of a token; of the block */
  const rope_plain_axes &axes;
  int b, first_token, own; /* own: the thread's token */

  __device__ void gather(const rope_plain &p) const {
    for (int i = (int)threadIdx.x; i < count; i += (int)blockDim.x) {
      const int token = i / pairs, pair = i - token * pairs, t = first_token + token;
      int axis = 0;
#pragma unroll
      for (int other = 1; other < TIGON_ROPE_AXES; ++other) {
        const rope_plain_pairs &of = axes.of[other];
        const bool within = other < axes.axes && pair >= of.first && pair < of.end;
        if (within && (of.step == 1 || (unsigned)(pair - of.first) % 3 == 0)) axis = other;
      }
      const int64_t position = position_of(p, axis, t);
      if (t >= p.tokens || position < 0 || position >= p.table_rows) continue;
      const int from = axis * axes.table_pitch + b * p.table_batch_pitch + (int)position * p.table_pitch;
      const unsigned c = load_raw(p.cos, from + pair * axes.table_step, p.table_dtype);
      const unsigned s = load_raw(p.sin, from + pair * axes.table_step, p.table_dtype);
      rope_held[i] = value_of(c, p.table_dtype), rope_held[count + i] = value_of(s, p.table_dtype);
    }
  }
  __device__ int64_t position_of(const rope_plain &p, int axis, int t) const {
    if (!p.positions || t >= p.tokens) return t;
    return load_index(p.positions, axis * axes.position_pitch + b * p.position_pitch + t, p.position_dtype);
  }
  /* By all threads of a block, whose heads are on their way meanwhile; is the thread's token's position in the tables? */
  template <class T, int N> __device__ bool load(const rope_plain &p, int pair, float (&c)[N], float (&s)[N]) const {
    int64_t position[TIGON_ROPE_AXES];
#pragma unroll
    for (int axis = 0; axis < TIGON_ROPE_AXES; ++axis)
      position[axis] = axis < axes.axes ? position_of(p, axis, own) : 0;
    gather(p);
    __syncthreads();
    const float *from = rope_held + at + pair;
#pragma unroll
    for (int i = 0; i < N; i += 4) {
      const float4 of_c = *(const float4 *)(from + i), of_s = *(const float4 *)(from + count + i);
      c[i] = of_c.x, c[i + 1] = of_c.y, c[i + 2] = of_c.z, c[i + 3] = of_c.w;
      s[i] = of_s.x, s[i + 1] = of_s.y, s[i + 2] = of_s.z, s[i + 3] = of_s.w;
    }
    bool legal = true;
#pragma unroll
    for (int axis = 0; axis < TIGON_ROPE_AXES; ++axis) legal &= position[axis] >= 0 & position[axis] < p.table_rows;
    return legal || own >= p.tokens;
  }
};
template <class R> struct rope_loads_by_block { static constexpr bool value = false; };
template <> struct rope_loads_by_block<rope_shared> { static constexpr bool value = true; };

/* A thread's heads. */
template <class T> struct rope_heads {
  const T *x[ROPE_HEADS];
  T *y[ROPE_HEADS]; /* NULL: no more heads */
  __device__ bool has(int j) const { return y[j]; }
  __device__ const T *from(int j) const { return x[j]; }
  __device__ T *to(int j) const { return y[j]; }
};
/* Each found when it is wanted: where it is stored, by parameters that come while the loads are on their way. */
template <class T> struct rope_plain_place {
  const rope_plain &p;
  int token, group; /* token: of the batch */
  __device__ bool has(int j) const { return group + j * p.groups < p.q.heads + p.k.heads; }
  __device__ const T *from(int j) const { return at(p.q, p.k, j); }
  __device__ T *to(int j) const { return at(p.q_out, p.k_out, j); }
  __device__ T *at(const rope_plain_heads &q, const rope_plain_heads &k, int j) const {
    const int h = group + j * p.groups;
    const bool of_q = h < q.heads;
    return (T *)(of_q ? q.data : k.data) + (token * (of_q ? q.token_pitch : k.token_pitch) +
                                            (of_q ? h : h - q.heads) * (of_q ? q.head_pitch : k.head_pitch));
  }
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

/* Says whether the positions are in the tables, which rows that a block loads find out by themselves. */
template <class T, int N, bool HALF, class P, class H, class I, class R>
__device__ inline bool turn_pairs(const P &p, const H &heads, I pair, const R &rows, float sign, bool legal) {
  /* Pairs lie in two chunks: of their first and their second elements, or one after the other. */
  const I first = HALF ? pair : 2 * pair, second = HALF ? pair + p.rotary_dim / 2 : 2 * pair + N;
  pack<T, N> x[ROPE_HEADS][2];
#pragma unroll
  for (int j = 0; j < ROPE_HEADS; ++j) {
    if (!heads.has(j)) continue;
    const T *from = heads.from(j);
    x[j][0] = load_pack<T, N>(from + first);
    x[j][1] = load_pack<T, N>(from + second);
  }
  float c[N], s[N];
  if constexpr (rope_loads_by_block<R>::value)
    legal = rows.template load<T, N>(p, pair, c, s);
  else if (legal)
    rows.template load<T, N>(p, pair, c, s);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    c[i] = legal ? c[i] : __int_as_float(0x7fffffff);
    s[i] = legal ? sign * s[i] : __int_as_float(0x7fffffff);
  }
#pragma unroll
  for (int j = 0; j < ROPE_HEADS; ++j) {
    if (!heads.has(j)) continue;
    float a[2][N], out[2][N];
    unpack<T, N>(x[j][0], a[0]);
    unpack<T, N>(x[j][1], a[1]);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      constexpr int STEP = HALF ? 1 : 2, OTHER = HALF ? N : 1;
      const int at = i * STEP, beside = at + OTHER;
      const float u = a[at / N][at % N], v = a[beside / N][beside % N];
      out[at / N][at % N] = fmaf(-v, s[i], u * c[i]);
      out[beside / N][beside % N] = fmaf(u, s[i], v * c[i]);
    }
    T *to = heads.to(j);
    store_pack<T, N>(to + first, packed<T, N>(out[0]));
    store_pack<T, N>(to + second, packed<T, N>(out[1]));
  }
  return legal;
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
      store_pack<T, N>(heads.y[j] + at, packed<T, N>(nan));
    else if (heads.x[j] != heads.y[j])
      store_pack<T, N>(heads.y[j] + at, load_pack<T, N>(heads.x[j] + at));
  }
}

template <class T, int N, bool HALF, class R>
__device__ inline void turn(const tigon_rope_problem &p, const rope_walk &w) {
  const int64_t i = (int64_t)blockIdx.x * ROPE_THREADS + threadIdx.x, of_token = w.groups * w.pieces;
  auto divide = [&](int64_t a, int64_t by) { return w.few ? (int64_t)((unsigned)a / (unsigned)by) : a / by; };
  const int64_t token = divide(i, of_token), at = i - token * of_token;
  const int64_t group = divide(at, w.pieces), piece = at - group * w.pieces;
  const int64_t b = divide(token, p.tokens), t = token - b * p.tokens;
  if (b >= p.batch) return;
  R rows;
  const bool legal = rows.find(p, b, t);
  if (!legal && at == 0 && p.error_flag) *p.error_flag = 1;
  const rope_heads<T> heads = heads_of<T>(p, w, b, t, group);
  if (piece < w.pairs)
    turn_pairs<T, N, HALF>(p, heads, piece * N, rows, w.sign, legal);
  else
    copy_rest<T, N>(heads, p.rotary_dim + (piece - w.pairs) * N, legal);
}

template <class T> __device__ inline void turn_plain(const rope_plain &p) {
  auto divide = [](unsigned a, const rope_divisor &d) { return __umulhi(2 * a, d.inverse); };
  const unsigned of_block = divide(threadIdx.x, p.of_token);
  const unsigned at = threadIdx.x - of_block * p.of_token.by, group = divide(at, p.pieces);
  const int b = (int)blockIdx.y, t = (int)blockIdx.x * p.block_tokens + (int)of_block, token = b * p.tokens + t;
  if (t >= p.tokens) return;
  const int piece = (int)(at - group * p.pieces.by);
  const int64_t position = p.positions ? load_index(p.positions, b * p.position_pitch + t, p.position_dtype) : t;
  const bool legal = position >= 0 && position < p.table_rows;
  turn_pairs<T, pack<T>::N, true>(p, rope_plain_place<T>{p, token, (int)group}, piece * (int)pack<T>::N,
                                  rope_row<int>{b * p.table_batch_pitch + (int)position * p.table_pitch}, p.sign,
                                  legal);
  if (!legal && at == 0 && p.error_flag) *p.error_flag = 1;
}

/* A thread of no token has no head, and gathers all the same. */
template <class T> __device__ inline void turn_plain_axes(const rope_plain &p, const rope_plain_axes &axes) {
  auto divide = [](unsigned a, const rope_divisor &d) { return __umulhi(2 * a, d.inverse); };
  const unsigned of_block = divide(threadIdx.x, p.of_token);
  const unsigned at = threadIdx.x - of_block * p.of_token.by, group = divide(at, p.pieces);
  const int b = (int)blockIdx.y, first = (int)blockIdx.x * p.block_tokens, t = first + (int)of_block;
  const int piece = (int)(at - group * p.pieces.by), pairs = p.rotary_dim / 2, none = p.q.heads + p.k.heads;
  const rope_shared rows = {(int)of_block * pairs, pairs, p.block_tokens * pairs, axes, b, first, t};
  const bool legal =
      turn_pairs<T, pack<T>::N, true>(p, rope_plain_place<T>{p, b * p.tokens + t, t < p.tokens ? (int)group : none},
                                      piece * (int)pack<T>::N, rows, p.sign, true);
  if (!legal && at == 0 && p.error_flag) *p.error_flag = 1;
}

#define KERNEL(name, n, half, ...)                                                                     \
  KERNEL_BY_DTYPE(rope_##name, (ROPE_THREADS, 3),                                                      \
                  (const __grid_constant__ tigon_rope_problem p, const __grid_constant__ rope_walk w), \
                  turn<T, n, half, __VA_ARGS__>(p, w))

KERNEL_BY_DTYPE(rope_half_plain, (ROPE_PLAIN_MOST), (const __grid_constant__ rope_plain p), turn_plain<T>(p))
KERNEL_BY_DTYPE(rope_half_plain_axes, (ROPE_PLAIN_MOST),
                (const __grid_constant__ rope_plain p, const __grid_constant__ rope_plain_axes axes),
                turn_plain_axes<T>(p, axes))
KERNEL(half_wide, pack<T>::N, true, rope_row<int64_t>)
KERNEL(half_any, 1, true, rope_row<int64_t>)
KERNEL(interleaved_wide, pack<T>::N, false, rope_row<int64_t>)
KERNEL(interleaved_any, 1, false, rope_row<int64_t>)
KERNEL(half_axes_wide, pack<T>::N, true, rope_rows)
KERNEL(half_axes_any, 1, true, rope_rows)
KERNEL(interleaved_axes_wide, pack<T>::N, false, rope_rows)
KERNEL(interleaved_axes_any, 1, false, rope_rows)
