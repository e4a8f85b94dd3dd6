/* Rows of the norms, backward. Block i of n has rows i, i + n, i + 2 n, .... So all blocks sweep memory together. A block adds up dw (and
 * layer_norm's db) over its rows and stores it once, as a slab. column_sums() adds the slabs up in order.
 * `held`: each team's rows are copied into shared memory some rows ahead. Each thread copies its own packs, so the only barrier is the one
 *   of the row's sums. The blocks of a cluster share rows that are wider than a block holds.
 * `walked`: rows of any width and alignment. A row is walked twice. Each thread adds up its own columns in the slab. */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_CUH

#include <cuda_pipeline.h>

#include "cuda/kernel/activation.cuh"
#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/norm_gradient.cuh"

extern __shared__ uint4 norm_stages[];

/* Starts to copy row r's packs of a tensor. */
template <class T> __device__ inline void norm_fetch(uint4 *to, const T *row, const team &t, int first, int cols) {
#pragma unroll
  for (int k = 0; k < NORM_BWD_PACKS; ++k) {
    const int c = first + (k * t.threads + t.rank) * pack<T>::N;
    if (c < cols) __pipeline_memcpy_async(to + k * NORM_BWD_THREADS, row + c, 16);
  }
}

/* A thread's weights, in registers as they are stored. f32 weights beside a narrower T are not kept; PLAIN rows have none. */
template <class T, bool PLAIN> struct norm_held_weights {
  enum { N = pack<T>::N };
  pack<T> kept[NORM_BWD_PACKS];
  const bool same;
  const float offset;
  __device__ norm_held_weights(const tigon_norm_bwd_problem &p, const team &t, int first)
      : same(PLAIN || !p.w || p.w_dtype == p.dtype), offset(p.w ? p.w_offset : 1) {
#pragma unroll
    for (int k = 0; k < NORM_BWD_PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      kept[k] = p.w && same && c < (int)p.cols ? load_pack((const T *)p.w + c) : zero_pack<T>();
    }
  }
  __device__ void get(const tigon_norm_bwd_problem &p, int k, int c, float (&w)[N]) const {
    if (same) {
      unpack(kept[k], w);
#pragma unroll
      for (int j = 0; j < N; ++j) w[j] += offset;
    } else {
      norm_weights<T>(p.w, p.w_dtype, p.w_offset, c, w);
    }
  }
};

/* Calls store(c, sum) for each of the block's columns c < `left`, in one thread each. The sum adds the teams' values in the order of the
 * teams. `space` has room for the sums of all threads. */
template <int N, class F>
__device__ inline void norm_join_teams(const team &t, float *space, const float (&sums)[NORM_BWD_PACKS * N], int left,
                                       F store) {
  const int width = t.threads * NORM_BWD_PACKS * N;
  __syncthreads(); /* space may be in use */
#pragma unroll
  for (int k = 0; k < NORM_BWD_PACKS; ++k)
#pragma unroll
    for (int j = 0; j < N; j += 4)
      *(float4 *)&space[t.index * width + (k * t.threads + t.rank) * N + j] =
          make_float4(sums[k * N + j], sums[k * N + j + 1], sums[k * N + j + 2], sums[k * N + j + 3]);
  __syncthreads();
  for (int c = threadIdx.x; c < (left < width ? left : width); c += blockDim.x) {
    float sum = space[c];
    for (int i = 1; i < t.count; ++i) sum += space[i * width + c];
    store(c, sum);
  }
}

/* Replaces dy by dy * silu(z). dz gets its factor, which the norm's output still has to multiply. */
template <class T, int N> __device__ inline void norm_gate(const pack<T, N> &z, float (&dy)[N], float (&dz)[N]) {
  float v[N];
  unpack(z, v);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    float silu;
    dz[j] = dy[j] * activate_slope<T, ACT_SILU>(v[j], silu);
    dy[j] *= silu;
  }
}

/* PLAIN: rows are at one pitch, a block holds them, and w has their dtype. */
template <class T, norm_kind KIND, bool PLAIN>
__device__ inline void norm_bwd_held(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  constexpr bool ADDS = KIND == NORM_ADD_RMS, GATED = KIND == NORM_GATED;
  constexpr int N = pack<T>::N, PACKS = NORM_BWD_PACKS, STREAMS = ADDS || GATED ? 3 : 2; /* streams of a stage */
  constexpr int STAGES = NORM_BWD_STAGES, STREAM = PACKS * NORM_BWD_THREADS;
  constexpr bool CENTERS = KIND == NORM_LAYER;
  constexpr int VALUES = CENTERS ? 2 : 1;
  __shared__ team_space<VALUES> space;
  __shared__ cluster_space<VALUES> shared;
  const team t = team_of(walk.team);
  const cluster cl = PLAIN ? cluster{0, 1} : cluster_of_block();
  const bool rounds = !CENTERS && norm_rounds<T>(p.casting);
  const int first = cl.rank * t.threads * PACKS * N, cols = (int)p.cols;
  const int64_t range = blockIdx.x / cl.size, rows = p.space.rows, step = walk.ranges * t.count;
  int64_t r = range + t.index * walk.ranges;
  const norm_held_weights<T, PLAIN> weights(p, t, first);
  float dw[PACKS * N] = {0}, db[CENTERS ? PACKS * N : 1] = {0};

  int64_t ahead = r; /* STAGES rows */
  int stage_ahead = 0;
  auto fetch = [&]() {
    if (ahead < rows) {
      uint4 *stage = norm_stages + (stage_ahead * STREAMS) * STREAM + threadIdx.x;
      norm_fetch(stage, norm_row_at<T, PLAIN>(p.space, p.dy, ahead), t, first, cols);
      norm_fetch(stage + STREAM, norm_row_at<T, PLAIN>(p.space, p.x, ahead), t, first, cols);
      if (ADDS) norm_fetch(stage + 2 * STREAM, norm_row_at<T, PLAIN>(p.space, p.ds, ahead), t, first, cols);
      if (GATED) norm_fetch(stage + 2 * STREAM, norm_row_at<T, PLAIN>(p.space, p.z, ahead), t, first, cols);
    }
    __pipeline_commit();
    ahead += step;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < STAGES; ++i) fetch();

  const float share = 1 / (float)p.cols;
  int turn = 0, stage_now = 0;
  float next_rstd = r < rows ? p.rstd[r] : 0, next_center = CENTERS && r < rows ? p.mean[r] : 0;
  for (; r < rows; r += step) {
    const float rstd = next_rstd, center = next_center;
    if (r + step < rows) {
      next_rstd = p.rstd[r + step];
      if (CENTERS) next_center = p.mean[r + step];
    }
    __pipeline_wait_prior(STAGES - 1);
    const uint4 *stage = norm_stages + (stage_now * STREAMS) * STREAM + threadIdx.x;
    stage_now = stage_now + 1 == STAGES ? 0 : stage_now + 1;
    T *dz = GATED && p.dz.data ? norm_row_at<T, PLAIN>(p.space, p.dz, r) : NULL;
    uint4 add[PACKS];
    float g[PACKS * N], xhat[PACKS * N], sums[VALUES] = {0}; /* sums of g * xhat and of g */
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      if (c >= cols) continue;
      float a[N], b[N], w[N];
      unpack(pack_of<T>(stage[k * NORM_BWD_THREADS]), a);
      unpack(pack_of<T>(stage[STREAM + k * NORM_BWD_THREADS]), b);
      if (ADDS) add[k] = stage[2 * STREAM + k * NORM_BWD_THREADS];
      weights.get(p, k, c, w);
      float of_dz[N];
      if (GATED) norm_gate<T>(pack_of<T>(stage[2 * STREAM + k * NORM_BWD_THREADS]), a, of_dz);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int i = k * N + j;
        g[i] = a[j] * w[j];
        xhat[i] = b[j] = (CENTERS ? b[j] - center : b[j]) * rstd;
        norm_gradient<KIND>::add(g[i], xhat[i], sums);
      }
      norm_round<T>(b, rounds);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int i = k * N + j;
        dw[i] = fmaf(a[j], b[j], dw[i]);
        if constexpr (CENTERS) db[i] += a[j];
        if (GATED) of_dz[j] *= b[j] * w[j];
      }
      if (GATED && dz) store_pack(dz + c, packed<T>(of_dz));
    }
    fetch(); /* the row's stage is free: it fills while the sums are made */
    team_all<op_sum, true>(t, space, turn, sums);
    if (!PLAIN) cluster_all<op_sum>(cl, shared, turn, sums);
    turn ^= 1;
    const norm_gradient<KIND> gradient(rstd, sums, share);
    T *dx = norm_row_at<T, PLAIN>(p.space, p.dx, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      if (c >= cols) continue;
      float out[N], ds[N];
      if (ADDS) unpack(pack_of<T>(add[k]), ds);
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] = gradient.dx(g[k * N + j], xhat[k * N + j], ADDS ? ds[j] : 0);
      store_pack(dx + c, packed<T>(out));
    }
  }
  next_kernel_may_begin();
  __pipeline_wait_prior(0);
  team_catch_up(t, r - t.index * walk.ranges < rows);

  /* The sums use the memory of the stages. */
  if (p.dw || (CENTERS && p.db)) {
    float *of_teams = (float *)norm_stages, *slab = p.slabs + range * VALUES * p.cols + first;
    norm_join_teams<N>(t, of_teams, dw, cols - first, [&](int c, float sum) { slab[c] = sum; });
    if constexpr (CENTERS)
      norm_join_teams<N>(t, of_teams, db, cols - first, [&](int c, float sum) { slab[p.cols + c] = sum; });
  }
  cluster_end(cl);
}

/* The team is the block. */
template <class T, norm_kind KIND, int N>
__device__ inline void norm_bwd_walked(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  constexpr bool CENTERS = KIND == NORM_LAYER;
  constexpr int VALUES = CENTERS ? 2 : 1;
  __shared__ team_space<VALUES> space;
  __shared__ cluster_space<VALUES> shared;
  const team t = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const bool rounds = !CENTERS && norm_rounds<T>(p.casting), adds_up = p.dw || (CENTERS && p.db);
  const int64_t at = (int64_t)(cl.rank * t.threads + t.rank) * N, step = (int64_t)cl.size * t.threads * N;
  const int64_t range = blockIdx.x / cl.size;
  float *dw = adds_up ? p.slabs + range * VALUES * p.cols : NULL, *db = dw + (CENTERS ? p.cols : 0);
  int turn = 0;
  for (int64_t r = range; r < p.space.rows; r += walk.ranges, turn ^= 1) {
    const T *dy = row_of<T>(p.space, p.dy, r), *x = row_of<T>(p.space, p.x, r);
    const T *ds = KIND == NORM_ADD_RMS ? row_of<T>(p.space, p.ds, r) : NULL;
    const T *z = KIND == NORM_GATED ? row_of<T>(p.space, p.z, r) : NULL;
    T *dx = row_of<T>(p.space, p.dx, r), *dz = NULL;
    if (KIND == NORM_GATED && p.dz.data) dz = row_of<T>(p.space, p.dz, r);
    const float rstd = p.rstd[r], center = CENTERS ? p.mean[r] : 0;
    double all[VALUES] = {0};
    norm_strips(at, p.cols, step, all, [&](int64_t i, float(&part)[VALUES]) {
      float a[N], b[N], w[N];
      norm_load<T>(dy + i, a);
      norm_load<T>(x + i, b);
      norm_weights<T>(p.w, p.w_dtype, p.w_offset, i, w);
      float rest[N];
      if (KIND == NORM_GATED) norm_gate<T>(load_pack<T, N>(z + i), a, rest);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (CENTERS) b[j] -= center;
        norm_gradient<KIND>::add(a[j] * w[j], b[j] * rstd, part);
      }
    });
    float sums[VALUES]; /* sums of g * xhat and of g */
#pragma unroll
    for (int i = 0; i < VALUES; ++i) sums[i] = (float)all[i];
    team_all<op_sum>(t, space, turn, sums);
    cluster_all<op_sum>(cl, shared, turn, sums);
    const norm_gradient<KIND> gradient(rstd, sums, 1 / (float)p.cols);
    for (int64_t c = at; c < p.cols; c += step) {
      float a[N], b[N], w[N], out[N], add[N];
      norm_load<T>(dy + c, a);
      norm_load<T>(x + c, b);
      norm_weights<T>(p.w, p.w_dtype, p.w_offset, c, w);
      if (KIND == NORM_ADD_RMS) norm_load<T>(ds + c, add);
      float of_dz[N];
      if (KIND == NORM_GATED) norm_gate<T>(load_pack<T, N>(z + c), a, of_dz);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (CENTERS) b[j] -= center;
        out[j] = gradient.dx(a[j] * w[j], b[j] * rstd, KIND == NORM_ADD_RMS ? add[j] : 0);
        if (KIND == NORM_GATED) of_dz[j] *= norm_xhat<T>(b[j], rstd, rounds) * w[j];
        if (!adds_up) continue;
        const float term = a[j] * norm_xhat<T>(b[j], rstd, rounds);
        dw[c + j] = r == range ? term : dw[c + j] + term;
        if (CENTERS) db[c + j] = r == range ? a[j] : db[c + j] + a[j];
      }
      norm_store<T>(dx + c, out);
      if (KIND == NORM_GATED && dz) norm_store<T>(dz + c, of_dz);
    }
  }
  next_kernel_may_begin();
  cluster_end(cl);
}

#endif
