/* poly_norm. A team sums over a row, and then stores it. */
#include "cuda/poly_norm.h"

#include "cuda/kernel/columns.cuh"
#include "cuda/kernel/norm.cuh"

/* A thread's packs of a row. HELD: POLY_PACKS are in registers; else they are read each time. */
template <class T, int N, bool HELD> struct poly_line {
  const T *row;
  const int64_t cols;
  const int first, step;
  pack<T, N> kept[HELD ? POLY_PACKS : 1];

  __device__ poly_line(const T *data, int64_t columns, const team &t)
      : row(data), cols(columns), first(t.rank * N), step(t.threads * N) {
#pragma unroll
    for (int k = 0; HELD && k < POLY_PACKS; ++k)
      kept[k] = first + k * step < cols ? load_pack<T, N>(row + first + k * step) : zero_pack<T, N>();
  }
  /* Pack k, whose first column is c. */
  __device__ void get(int64_t c, int k, float (&v)[N]) const { unpack(HELD ? kept[k] : load_pack<T, N>(row + c), v); }
};

/* f(c, k) of each pack. */
template <class T, int N, bool HELD, class F> __device__ inline void poly_each(const poly_line<T, N, HELD> &x, F f) {
  if constexpr (HELD) {
#pragma unroll
    for (int k = 0; k < POLY_PACKS; ++k)
      if (x.first + k * x.step < x.cols) f(x.first + k * x.step, k);
  } else {
    for (int64_t c = x.first; c < x.cols; c += x.step) f(c, 0);
  }
}

/* A row's sums, in every thread: add(c, k, sums) adds a pack's terms. */
template <class T, int N, bool HELD, int SUMS, class F>
__device__ inline void poly_sum(const poly_line<T, N, HELD> &x, const team &t, team_space<SUMS> &space, int turn,
                                float (&sums)[SUMS], F add) {
  if constexpr (HELD) {
    poly_each(x, [&](int64_t c, int k) { add(c, k, sums); });
  } else {
    double all[SUMS] = {0};
    norm_strips(x.first, x.cols, x.step, all, [&](int64_t c, float(&part)[SUMS]) { add(c, 0, part); });
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] = (float)all[i];
  }
  team_all<op_sum>(t, space, turn, sums);
}

/* Forward y = f_3 x^3 + f_2 x^2 + f_1 x + b, and f_p is a slope; backward dx = sum over p of slope_p * x^(p-1) * (dy - x^p * back_p). */
struct poly_factors {
  float slope[TIGON_POLY], back[TIGON_POLY], b;

  __device__ float y(float x) const { return fmaf(fmaf(fmaf(slope[0], x, slope[1]), x, slope[2]), x, b); }
  __device__ float dx(float x, float dy) const {
    const float square = x * x, third = slope[0] * fmaf(-square * x, back[0], dy);
    const float second = slope[1] * fmaf(-square, back[1], dy), one = slope[2] * fmaf(-x, back[2], dy);
    return fmaf(fmaf(third, x, second), x, one);
  }
};

/* Row sums are of x^2p forward, of dy * x^p and dy backward. */
template <class T, int N, bool BACKWARD, bool HELD>
__device__ inline void poly_rows(const tigon_poly_norm_problem &p, const poly_walk &walk) {
  constexpr int SUMS = BACKWARD ? POLY_SUMS : TIGON_POLY;
  __shared__ team_space<SUMS> space;
  const team t = team_of(walk.team);
  const int64_t first = (int64_t)blockIdx.x * t.count + t.index;
  float w[TIGON_POLY], b[1], rstd[TIGON_POLY], all[POLY_SUMS] = {0};
  int turn = 0;
  for (int64_t r = first; r < p.space.rows; r += walk.teams, turn ^= 1) {
    const poly_line<T, N, HELD> x(row_of<T>(p.space, p.x, r), p.cols, t);
    const poly_line<T, N, HELD> dy = BACKWARD ? poly_line<T, N, HELD>(row_of<T>(p.space, p.dy, r), p.cols, t) : x;
    float *const stored = p.rstd ? p.rstd + TIGON_POLY * r : nullptr, sums[SUMS] = {0};
    if (BACKWARD) load_any(stored, 0, TIGON_F32, rstd);
    if (BACKWARD && HELD && t.threads > WARP && r + walk.teams < p.space.rows) {
      const T *next_x = row_of<T>(p.space, p.x, r + walk.teams), *next_dy = row_of<T>(p.space, p.dy, r + walk.teams);
      poly_each(x, [&](int64_t c, int) { prefetch(next_x + c), prefetch(next_dy + c); });
    }
    if (r == first) { /* while the row is on its way */
      load_columns<T, TIGON_POLY>(p.w, 0, w);
      load_columns<T, 1>(p.b, 0, b);
    }
    poly_sum(x, t, space, turn, sums, [&](int64_t c, int k, float(&to)[SUMS]) {
      float v[N], u[N];
      x.get(c, k, v);
      dy.get(c, k, u);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float square = v[j] * v[j], cube = square * v[j];
        to[0] = fmaf(BACKWARD ? u[j] : cube, cube, to[0]);
        to[1] = fmaf(BACKWARD ? u[j] : square, square, to[1]);
        to[2] = fmaf(u[j], v[j], to[2]);
        if constexpr (BACKWARD) to[TIGON_POLY] += u[j];
      }
    });
    poly_factors f;
    f.b = b[0];
#pragma unroll
    for (int i = 0; i < TIGON_POLY; ++i) {
      if (!BACKWARD) rstd[i] = norm_rsqrt_mean(sums[i], (float)p.cols, p.eps);
      if (!BACKWARD && stored && t.rank == 0) stored[i] = rstd[i];
      const float dot = sums[i] * rstd[i];
      f.slope[i] = (BACKWARD ? TIGON_POLY - i : 1) * w[i] * rstd[i];
      f.back[i] = dot / (float)p.cols * rstd[i];
      all[i] += dot;
    }
    if constexpr (BACKWARD) all[TIGON_POLY] += sums[TIGON_POLY];
    T *to = row_of<T>(p.space, p.out, r);
    poly_each(x, [&](int64_t c, int k) {
      float v[N], u[N], out[N];
      x.get(c, k, v);
      dy.get(c, k, u);
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] = BACKWARD ? f.dx(v[j], u[j]) : f.y(v[j]);
      store_pack(to + c, packed<T, N>(out));
    });
  }
  column_sum_may_begin();
  if (!p.sums || t.rank > 0) return;
#pragma unroll
  for (int i = 0; i < POLY_SUMS; ++i) ((float *)p.sums)[POLY_SUMS * first + i] = all[i];
}

/* The gradients of w and b, from all teams' sums. */
extern "C" __global__ void __launch_bounds__(POLY_THREADS)
    poly_norm_sums(const __grid_constant__ tigon_poly_norm_problem p, const __grid_constant__ poly_walk walk) {
  __shared__ team_space<POLY_SUMS> space;
  float all[POLY_SUMS] = {0};
  column_sum_await();
  for (int64_t s = threadIdx.x; s < walk.teams; s += POLY_THREADS)
#pragma unroll
    for (int i = 0; i < POLY_SUMS; ++i) all[i] += ((const float *)p.sums)[POLY_SUMS * s + i];
  team_all<op_sum>(team_of(POLY_THREADS), space, 0, all);
  if (threadIdx.x > 0) return;
#pragma unroll
  for (int i = 0; i < POLY_SUMS; ++i) {
    const tigon_vector &to = i < TIGON_POLY ? p.dw : p.db;
    const int at = i % TIGON_POLY;
    if (to.data) store_any(to.data, at, to.dtype, all[i] + (p.accumulate ? load_any(to.data, at, to.dtype) : 0));
  }
}

#define POLY_KERNEL(name, N, backward, held)                                                                   \
  KERNEL_BY_DTYPE(name, (POLY_THREADS),                                                                        \
                  (const __grid_constant__ tigon_poly_norm_problem p, const __grid_constant__ poly_walk walk), \
                  poly_rows<T, N, backward, held>(p, walk))
#define POLY_KERNELS(way, backward)                                       \
  POLY_KERNEL(poly_norm_##way##_walked_any, 1, backward, false)           \
  POLY_KERNEL(poly_norm_##way##_walked_wide, pack<T>::N, backward, false) \
  POLY_KERNEL(poly_norm_##way##_held_any, 1, backward, true)              \
  POLY_KERNEL(poly_norm_##way##_held_wide, pack<T>::N, backward, true)
POLY_KERNELS(fwd, false)
POLY_KERNELS(bwd, true)
