/* poly_norm. A block sums over a row, and then stores it. Aligned rows at one pitch with at most POLY_PACKS packs per thread are read
 * once. Forward holds them in registers. Backward stages them in shared memory, with the block's next rows. Other rows are walked twice. */
#include "cuda/poly_norm.h"

#include <cuda_pipeline.h>

#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/norm.cuh"

/* A block's rows, one after the other. Forward sums x^2p, and stores y = f_3 x^3 + f_2 x^2 + f_1 x + b, where f_p is a slope. Backward
 * sums dy * x^p and dy, and stores dx = sum over p of slope_p * x^(p-1) * (dy - x^p * back_p). */
template <class T, bool BACKWARD> struct poly_work {
  static constexpr int SUMS = BACKWARD ? POLY_SUMS : TIGON_POLY;
  const tigon_poly_norm_problem &p;
  const team t;
  unsigned raw[TIGON_POLY + 1] = {0}; /* w and b as in memory: nothing waits for them before find() */
  float b, rstd[TIGON_POLY], slope[TIGON_POLY], back[TIGON_POLY], all[POLY_SUMS] = {0};
  int turn = 0;

  __device__ explicit poly_work(const tigon_poly_norm_problem &problem) : p(problem), t(team_of((int)blockDim.x)) {}
  __device__ void load_weights() {
#pragma unroll
    for (int i = 0; i < TIGON_POLY; ++i) raw[i] = load_raw(p.w.data, i, p.w.dtype);
    if (!BACKWARD && p.b.data) raw[TIGON_POLY] = load_raw(p.b.data, 0, p.b.dtype);
  }
  __device__ void load_rstd(int64_t r) {
#pragma unroll
    for (int i = 0; BACKWARD && i < TIGON_POLY; ++i) rstd[i] = p.rstd[TIGON_POLY * r + i];
  }
  template <int N> __device__ static void add(const float (&x)[N], const float (&dy)[N], float (&sums)[SUMS]) {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float square = x[j] * x[j], cube = square * x[j];
      sums[0] = fmaf(BACKWARD ? dy[j] : cube, cube, sums[0]);
      sums[1] = fmaf(BACKWARD ? dy[j] : square, square, sums[1]);
      sums[2] = fmaf(BACKWARD ? dy[j] : x[j], x[j], sums[2]);
      if constexpr (BACKWARD) sums[TIGON_POLY] += dy[j];
    }
  }
  /* The factors of row r, from the sums of its threads. */
  __device__ void find(int64_t r, float (&sums)[SUMS]) {
    __shared__ team_space<SUMS> space;
    team_all<op_sum>(t, space, turn ^= 1, sums);
#pragma unroll
    for (int i = 0; i < TIGON_POLY; ++i) {
      if (!BACKWARD) rstd[i] = norm_rsqrt_mean(sums[i], (float)p.cols, p.eps);
      if (!BACKWARD && p.rstd && t.rank == 0) p.rstd[TIGON_POLY * r + i] = rstd[i];
      const float dot = sums[i] * rstd[i];
      slope[i] = (BACKWARD ? TIGON_POLY - i : 1) * value_of(raw[i], p.w.dtype) * rstd[i];
      back[i] = dot / (float)p.cols * rstd[i];
      all[i] += dot;
    }
    if constexpr (BACKWARD) all[TIGON_POLY] += sums[TIGON_POLY];
    b = value_of(raw[TIGON_POLY], p.b.dtype);
  }
  template <int N> __device__ void put(const float (&x)[N], const float (&dy)[N], T *to) const {
    float out[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const float square = x[j] * x[j];
      if (BACKWARD) {
        const float third = slope[0] * fmaf(-square * x[j], back[0], dy[j]);
        const float second = slope[1] * fmaf(-square, back[1], dy[j]);
        out[j] = fmaf(fmaf(third, x[j], second), x[j], slope[2] * fmaf(-x[j], back[2], dy[j]));
      } else {
        out[j] = fmaf(fmaf(fmaf(slope[0], x[j], slope[1]), x[j], slope[2]), x[j], b);
      }
    }
    store_pack(to, packed<T, N>(out));
  }
  /* The block's slab. */
  __device__ void end() const {
    next_kernel_may_begin();
#pragma unroll
    for (int i = 0; i < POLY_SUMS; ++i)
      if (p.sums && t.rank == 0) ((float *)p.sums)[POLY_SUMS * blockIdx.x + i] = all[i];
  }
};

/* f(c, k) for each of a thread's packs k of a row; c is the pack's first column. */
template <class T, class F> __device__ inline void poly_packs(const team &t, int64_t cols, F f) {
#pragma unroll
  for (int k = 0; k < POLY_PACKS; ++k) {
    const int c = (k * t.threads + t.rank) * pack<T>::N;
    if (c < (int)cols) f(c, k);
  }
}

template <class T> __device__ inline void poly_fwd_held(const tigon_poly_norm_problem &p) {
  poly_work<T, false> work(p);
  const T *row = norm_row_at<T, true>(p.space, p.x, blockIdx.x);
  T *to = norm_row_at<T, true>(p.space, p.out, blockIdx.x);
  pack<T> kept[POLY_PACKS];
  poly_packs<T>(work.t, p.cols, [&](int c, int k) { kept[k] = load_pack(row + c); });
  work.load_weights(); /* while the row is on its way */
  float sums[TIGON_POLY] = {0}, x[pack<T>::N];
  poly_packs<T>(work.t, p.cols, [&](int, int k) { unpack(kept[k], x), work.add(x, x, sums); });
  work.find(blockIdx.x, sums);
  poly_packs<T>(work.t, p.cols, [&](int c, int k) { unpack(kept[k], x), work.put(x, x, to + c); });
}

extern __shared__ uint4 poly_stages[]; /* [POLY_STAGES, POLY_PACKS, 2, threads]: x, dy */

template <class T> __device__ inline void poly_bwd_staged(const tigon_poly_norm_problem &p) {
  poly_work<T, true> work(p);
  const int threads = (int)blockDim.x, stage = 2 * POLY_PACKS * threads, end = POLY_STAGES * stage + (int)threadIdx.x;
  int64_t ahead = blockIdx.x;
  int to = (int)threadIdx.x, now = to;
  const auto fetch = [&]() {
    const T *x = norm_row_at<T, true>(p.space, p.x, ahead), *dy = norm_row_at<T, true>(p.space, p.dy, ahead);
    if (ahead < p.space.rows)
      poly_packs<T>(work.t, p.cols, [&](int c, int k) {
        __pipeline_memcpy_async(&poly_stages[to + 2 * k * threads], x + c, 16);
        __pipeline_memcpy_async(&poly_stages[to + (2 * k + 1) * threads], dy + c, 16);
      });
    __pipeline_commit();
    ahead += gridDim.x, to = to + stage == end ? (int)threadIdx.x : to + stage;
  };
  for (int i = 1; i < POLY_STAGES; ++i) fetch();
  work.load_weights();
  for (int64_t r = blockIdx.x; r < p.space.rows; r += gridDim.x) {
    float sums[POLY_SUMS] = {0}, x[pack<T>::N], dy[pack<T>::N];
    const auto take = [&](int k) {
      unpack(pack_of<T>(poly_stages[now + 2 * k * threads]), x);
      unpack(pack_of<T>(poly_stages[now + (2 * k + 1) * threads]), dy);
    };
    T *dx = norm_row_at<T, true>(p.space, p.out, r);
    work.load_rstd(r);
    fetch();
    __pipeline_wait_prior(POLY_STAGES - 1);
    poly_packs<T>(work.t, p.cols, [&](int, int k) { take(k), work.add(x, dy, sums); });
    work.find(r, sums);
    poly_packs<T>(work.t, p.cols, [&](int c, int k) { take(k), work.put(x, dy, dx + c); });
    now = now + stage == end ? (int)threadIdx.x : now + stage;
  }
  work.end();
}

template <class T, bool BACKWARD, int N> __device__ inline void poly_walked(const tigon_poly_norm_problem &p) {
  constexpr int SUMS = poly_work<T, BACKWARD>::SUMS;
  poly_work<T, BACKWARD> work(p);
  const int64_t own = work.t.rank * N, step = work.t.threads * N;
  work.load_weights();
  for (int64_t r = blockIdx.x; r < p.space.rows; r += gridDim.x) {
    const T *x = row_of<T>(p.space, p.x, r), *dy = BACKWARD ? row_of<T>(p.space, p.dy, r) : x;
    T *to = row_of<T>(p.space, p.out, r);
    float v[N], u[N], sums[SUMS];
    double all[SUMS] = {0};
    const auto take = [&](int64_t c) { norm_load(x + c, v), norm_load(dy + c, u); };
    work.load_rstd(r);
    norm_strips(own, p.cols, step, all, [&](int64_t c, float(&part)[SUMS]) { take(c), work.add(v, u, part); });
#pragma unroll
    for (int i = 0; i < SUMS; ++i) sums[i] = (float)all[i];
    work.find(r, sums);
    for (int64_t c = own; c < p.cols; c += step) take(c), work.put(v, u, to + c);
  }
  if (BACKWARD) work.end();
}

#define POLY_KERNEL(name, blocks, ...)                                                                          \
  KERNEL_BY_DTYPE(name, (POLY_THREADS, blocks), (const __grid_constant__ tigon_poly_norm_problem p, int lanes), \
                  __VA_ARGS__)
POLY_KERNEL(poly_norm_fwd_held, 2, poly_fwd_held<T>(p))
POLY_KERNEL(poly_norm_bwd_staged, 1, poly_bwd_staged<T>(p))
POLY_KERNEL(poly_norm_fwd_walked, 2, lanes > 1 ? poly_walked<T, false, pack<T>::N>(p) : poly_walked<T, false, 1>(p))
POLY_KERNEL(poly_norm_bwd_walked, 2, lanes > 1 ? poly_walked<T, true, pack<T>::N>(p) : poly_walked<T, true, 1>(p))
