/* Rows of softmax. `held`: a row stays in the registers of its team, or of the teams of a cluster, and is read once; in
 * `packed` as it came. `walked`: of any width; the second reading comes out of the L2 where the row fits there. */
#include <cuda_pipeline.h>

#include "cuda/kernel/row.cuh"
#include "cuda/softmax.h"

/* e^v for v <= 0; what is below 2^-126 is 0. */
__device__ static inline float exp_below(float v) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v * 1.44269504f));
  return e;
}

/* Columns that row r sees. */
__device__ static inline int64_t seen_columns(const tigon_softmax_fwd_problem &p, int64_t r) {
  if (!p.causal) return p.cols;
  const int64_t seen = r % p.tokens + p.cols - p.tokens + 1;
  return seen < 0 ? 0 : seen < p.cols ? seen : p.cols;
}

/* Scores of a chunk whose first column is c of the row and of which `left` columns count; -inf for the others. */
template <class T, int N, bool MASKED>
__device__ inline void scores(const tigon_softmax_fwd_problem &p, const pack<T, N> &x, int64_t mask_at, int64_t left,
                              float (&z)[N]) {
  unpack<T, N>(x, z);
  if constexpr (MASKED) {
    float mask[N] = {0};
    if (left > 0) {
      if constexpr (N == 1)
        mask[0] = load_any(p.mask.data, mask_at, p.mask_dtype);
      else
        load_vector<T>(p.mask.data, p.mask_dtype, mask_at, mask);
    }
#pragma unroll
    for (int j = 0; j < N; ++j) z[j] = fmaf(z[j], p.scale, mask[j]);
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) z[j] *= p.scale;
  }
  if (left >= N) return;
#pragma unroll
  for (int j = 0; j < N; ++j) z[j] = j < left ? z[j] : MINUS_INF;
}

/* Each block of a cluster has its largest score and the sum of the exponentials relative to it; all get those of the row. `size` is a
 * power of two. */
__device__ static inline void cluster_softmax(const cluster &cl, float (&space)[2], float &largest, float &sum) {
#if __CUDA_ARCH__ >= 900
  if (cl.size == 1) return;
  cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
  if (threadIdx.x == 0) space[0] = largest, space[1] = sum;
  group.sync();
  const float *its = group.map_shared_rank(&space[0], threadIdx.x & (cl.size - 1));
  const float own = its[0];
  sum = its[1];
  largest = own;
  for (int d = cl.size / 2; d > 0; d /= 2) largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, d));
  sum *= exp_below(own - base_of(largest));
  for (int d = cl.size / 2; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
#endif
}

/* y of a chunk of which `left` columns count; the others are 0 even beside a NaN. */
template <class T, int N> __device__ inline void store_scores(T *y, float (&e)[N], float factor, int64_t left) {
#pragma unroll
  for (int j = 0; j < N; ++j) e[j] *= factor;
  if (left < N) {
#pragma unroll
    for (int j = 0; j < N; ++j) e[j] = j < left ? e[j] : 0.0f;
  }
  store_pack<T, N>(y, packed<T, N>(e));
}

/* ---- forward ---- */

/* EACH chunks of N a thread hold a row. */
template <class T, int N, int EACH, bool MASKED>
__device__ inline void fwd_held(const tigon_softmax_fwd_problem &p, int threads, int64_t first_row) {
  __shared__ team_space<1> space;
  __shared__ float shared[2];
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  const columns<N> at(t, cl);
  const int step = (int)at.step;
  const int64_t r = row_of_team(first_row, t, cl);
  if (r >= p.space.rows) return;
  const T *x = row_of<T>(p.space, p.x, r) + at.first;
  const int seen = (int)(seen_columns(p, r) - at.first), width = (int)(p.cols - at.first);
  pack<T, N> kept[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) kept[k] = k * step < seen ? load_pack<T, N>(x + k * step) : zero_pack<T, N>();
  const int64_t mask_at = MASKED ? tigon_row_offset(&p.space, &p.mask, r) + at.first : 0;
  float z[EACH][N], of[1] = {MINUS_INF};
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    scores<T, N, MASKED>(p, kept[k], mask_at + k * step, seen - k * step, z[k]);
    of[0] = fmaxf(of[0], largest_of<N>(z[k]));
  }
  team_all<op_largest>(t, space, 0, of);
  const float own = of[0], base = base_of(own);
  of[0] = 0;
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
#pragma unroll
    for (int j = 0; j < N; ++j) z[k][j] = exp_below(z[k][j] - base);
    of[0] += sum_of<N>(z[k]);
  }
  team_all<op_sum>(t, space, 1, of);
  float largest = own, sum = of[0];
  cluster_softmax(cl, shared, largest, sum);
  float factor = sum == 0 ? 0.0f : 1.0f / sum;
  if (cl.size > 1) factor *= exp_below(own - base_of(largest));
  T *y = row_of<T>(p.space, p.y, r) + at.first;
#pragma unroll
  for (int k = 0; k < EACH; ++k)
    if (k * step < width) store_scores<T, N>(y + k * step, z[k], factor, seen - k * step);
  cluster_end(cl);
}

extern __shared__ uint4 softmax_held[]; /* [packs][threads] */

/* A block's row, of which all columns count, kept as it came. A thread has SOFTMAX_OWN packs in registers and the others in
 * shared memory. So an SM has room for 256 KiB of rows. Exponentials are computed twice. */
template <class T, bool MASKED>
__device__ inline void fwd_packed(const tigon_softmax_fwd_problem &p, int threads, int64_t first_row) {
  constexpr int N = pack<T>::N;
  __shared__ team_space<1> space;
  const team t = team_of(threads);
  const columns<N> at(t, cluster{0, 1});
  const int step = (int)at.step, width = (int)(p.cols - at.first);
  const int64_t r = first_row + blockIdx.x;
  const T *x = row_of<T>(p.space, p.x, r) + at.first;
  uint4 *const held = softmax_held + threadIdx.x;
  pack<T, N> own[SOFTMAX_OWN];
#pragma unroll
  for (int k = SOFTMAX_OWN; k < SOFTMAX_PACKS; ++k)
    if (k * step < width) __pipeline_memcpy_async(held + (k - SOFTMAX_OWN) * threads, x + k * step, 16);
  __pipeline_commit();
#pragma unroll
  for (int k = 0; k < SOFTMAX_OWN; ++k) own[k] = k * step < width ? load_pack<T, N>(x + k * step) : zero_pack<T, N>();
  const int64_t mask_at = MASKED ? tigon_row_offset(&p.space, &p.mask, r) + at.first : 0;
  /* f(column, scores) of each of the thread's packs. */
  auto each = [&](auto f) {
#pragma unroll
    for (int k = 0; k < SOFTMAX_PACKS; ++k) {
      if (k < SOFTMAX_OWN) keep_packed(own[k]);
      if (k * step >= width) continue;
      float z[N];
      const pack<T, N> kept = k < SOFTMAX_OWN ? own[k] : pack<T, N>{held[(k - SOFTMAX_OWN) * threads]};
      scores<T, N, MASKED>(p, kept, mask_at + k * step, N, z);
      f(k * step, z);
    }
  };
  float of[1] = {MINUS_INF};
  __pipeline_wait_prior(0);
  each([&](int, float(&z)[N]) { of[0] = fmaxf(of[0], largest_of<N>(z)); });
  team_all<op_largest>(t, space, 0, of);
  const float base = base_of(of[0]);
  auto exponentials = [&](float(&z)[N]) {
#pragma unroll
    for (int j = 0; j < N; ++j) z[j] = exp_below(z[j] - base);
  };
  of[0] = 0;
  each([&](int, float(&z)[N]) { exponentials(z), of[0] += sum_of<N>(z); });
  team_all<op_sum>(t, space, 1, of);
  const float factor = of[0] == 0 ? 0.0f : 1.0f / of[0];
  T *y = row_of<T>(p.space, p.y, r) + at.first;
  each([&](int c, float(&z)[N]) { exponentials(z), store_scores<T, N>(y + c, z, factor, N); });
}

/* The largest score and the sum online: what has been added up shrinks when a larger one comes. */
template <class T, int N, bool MASKED>
__device__ inline void fwd_walked(const tigon_softmax_fwd_problem &p, int threads, int64_t first_row) {
  __shared__ team_space<1> space;
  __shared__ float shared[2];
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  const columns<N> at(t, cl);
  const int64_t r = row_of_team(first_row, t, cl);
  if (r >= p.space.rows) return;
  const T *x = row_of<T>(p.space, p.x, r);
  T *y = row_of<T>(p.space, p.y, r);
  const int64_t seen = seen_columns(p, r), mask_at = MASKED ? tigon_row_offset(&p.space, &p.mask, r) : 0;
  float most = MINUS_INF, sum = 0;
#pragma unroll 4
  for (int64_t c = at.first; c < seen; c += at.step) {
    float z[N];
    scores<T, N, MASKED>(p, load_pack<T, N>(x + c), mask_at + c, seen - c, z);
    const float here = fmaxf(most, largest_of<N>(z)), base = base_of(here);
    sum *= exp_below(most - base);
#pragma unroll
    for (int j = 0; j < N; ++j) z[j] = exp_below(z[j] - base);
    sum += sum_of<N>(z);
    most = here;
  }
  float of[1] = {most};
  team_all<op_largest>(t, space, 0, of);
  float largest = of[0];
  of[0] = sum * exp_below(most - base_of(largest));
  team_all<op_sum>(t, space, 1, of);
  sum = of[0];
  cluster_softmax(cl, shared, largest, sum);
  const float factor = sum == 0 ? 0.0f : 1.0f / sum, base = base_of(largest);
#pragma unroll 4
  for (int64_t c = at.first; c < p.cols; c += at.step) {
    float z[N];
    const pack<T, N> kept = c < seen ? load_pack<T, N>(x + c) : zero_pack<T, N>();
    scores<T, N, MASKED>(p, kept, mask_at + c, seen - c, z);
#pragma unroll
    for (int j = 0; j < N; ++j) z[j] = exp_below(z[j] - base);
    store_scores<T, N>(y + c, z, factor, seen - c);
  }
  cluster_end(cl);
}

/* ---- backward ---- */

template <class T, int N> __device__ inline float dot_of(const pack<T, N> &dy, const pack<T, N> &y) {
  float a[N], b[N];
  unpack<T, N>(dy, a);
  unpack<T, N>(y, b);
#pragma unroll
  for (int j = 0; j < N; ++j) a[j] *= b[j];
  return sum_of<N>(a);
}

template <class T, int N>
__device__ inline void store_slope(T *dx, const pack<T, N> &dy, const pack<T, N> &y, float scale, float dot) {
  float a[N], b[N];
  unpack<T, N>(dy, a);
  unpack<T, N>(y, b);
#pragma unroll
  for (int j = 0; j < N; ++j) a[j] = b[j] * (scale * (a[j] - dot));
  store_pack<T, N>(dx, packed<T, N>(a));
}

template <class T, int N, int EACH>
__device__ inline void bwd_held(const tigon_softmax_bwd_problem &p, int threads, int64_t first_row) {
  __shared__ team_space<1> space;
  __shared__ cluster_space<1> shared;
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  const columns<N> at(t, cl);
  const int step = (int)at.step, width = (int)(p.cols - at.first);
  const int64_t r = row_of_team(first_row, t, cl);
  if (r >= p.space.rows) return;
  const T *dy = row_of<T>(p.space, p.dy, r) + at.first, *y = row_of<T>(p.space, p.y, r) + at.first;
  pack<T, N> g[EACH], v[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    g[k] = k * step < width ? load_pack<T, N>(dy + k * step) : zero_pack<T, N>();
    v[k] = k * step < width ? load_pack<T, N>(y + k * step) : zero_pack<T, N>();
  }
  float dot[1] = {0};
#pragma unroll
  for (int k = 0; k < EACH; ++k) dot[0] += dot_of<T, N>(g[k], v[k]);
  team_all<op_sum>(t, space, 0, dot);
  cluster_all<op_sum>(cl, shared, 0, dot);
  T *dx = row_of<T>(p.space, p.dx, r) + at.first;
#pragma unroll
  for (int k = 0; k < EACH; ++k) keep_packed(g[k]), keep_packed(v[k]);
#pragma unroll
  for (int k = 0; k < EACH; ++k)
    if (k * step < width) store_slope<T, N>(dx + k * step, g[k], v[k], p.scale, dot[0]);
  cluster_end(cl);
}

template <class T, int N>
__device__ inline void bwd_walked(const tigon_softmax_bwd_problem &p, int threads, int64_t first_row) {
  __shared__ team_space<1> space;
  __shared__ cluster_space<1> shared;
  const team t = team_of(threads);
  const cluster cl = cluster_of_block();
  const columns<N> at(t, cl);
  const int64_t r = row_of_team(first_row, t, cl);
  if (r >= p.space.rows) return;
  const T *dy = row_of<T>(p.space, p.dy, r), *y = row_of<T>(p.space, p.y, r);
  T *dx = row_of<T>(p.space, p.dx, r);
  float dot[1] = {0};
#pragma unroll 4
  for (int64_t c = at.first; c < p.cols; c += at.step)
    dot[0] += dot_of<T, N>(load_pack<T, N>(dy + c), load_pack<T, N>(y + c));
  team_all<op_sum>(t, space, 0, dot);
  cluster_all<op_sum>(cl, shared, 0, dot);
#pragma unroll 4
  for (int64_t c = at.first; c < p.cols; c += at.step)
    store_slope<T, N>(dx + c, load_pack<T, N>(dy + c), load_pack<T, N>(y + c), p.scale, dot[0]);
  cluster_end(cl);
}

#define FWD_KERNEL(name, ...)                                                                                     \
  KERNEL_BY_DTYPE(softmax_fwd_##name, (ROW_MOST_THREADS),                                                         \
                  (const __grid_constant__ tigon_softmax_fwd_problem p, const int team, const int64_t first_row), \
                  __VA_ARGS__)
#define FWD(name, work, ...)                                              \
  FWD_KERNEL(name, fwd_##work<T, __VA_ARGS__, false>(p, team, first_row)) \
  FWD_KERNEL(mask_##name, fwd_##work<T, __VA_ARGS__, true>(p, team, first_row))
#define BWD(name, work, ...)                                                                                      \
  KERNEL_BY_DTYPE(softmax_bwd_##name, (ROW_MOST_THREADS),                                                         \
                  (const __grid_constant__ tigon_softmax_bwd_problem p, const int team, const int64_t first_row), \
                  bwd_##work<T, __VA_ARGS__>(p, team, first_row))

FWD(1, held, pack<T>::N, 1)
FWD(2, held, pack<T>::N, 2)
FWD(4, held, pack<T>::N, 4)
FWD_KERNEL(packed, fwd_packed<T, false>(p, team, first_row))
FWD_KERNEL(mask_packed, fwd_packed<T, true>(p, team, first_row))
FWD(any_8, held, 1, 8)
FWD(any_16, held, 1, 16)
FWD(walk, walked, pack<T>::N)
FWD(any, walked, 1)
BWD(1, held, pack<T>::N, 1)
BWD(2, held, pack<T>::N, 2)
BWD(4, held, pack<T>::N, 4)
BWD(any_8, held, 1, 8)
BWD(any_16, held, 1, 16)
BWD(walk, walked, pack<T>::N)
BWD(any, walked, 1)
