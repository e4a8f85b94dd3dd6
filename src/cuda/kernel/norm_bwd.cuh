/* Rows of the norms backward. A block has a range of rows, adds dw (and layer_norm's db) up over them and stores it once, as a slab;
 * column_sums() adds the slabs up in order. `held`: each team's rows are on their way into shared memory some rows ahead, every thread
 * its own packs, so that no barrier is needed but that of the row's sums; the blocks of a cluster share rows that are wider than a block
 * holds. `walked`: of any width and alignment; a row is walked twice, and the slab is where its sums are added up, every thread its own
 * columns. */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_CUH

#include <cuda_pipeline.h>

#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/norm.cuh"

extern __shared__ uint4 norm_stages[];

/* Row r's packs of a tensor begin to move. */
template <class T> __device__ inline void norm_fetch(uint4 *to, const T *row, const team &t, int first, int cols) {
#pragma unroll
  for (int k = 0; k < NORM_BWD_PACKS; ++k) {
    const int c = first + (k * t.threads + t.rank) * pack<T>::N;
    if (c < cols) __pipeline_memcpy_async(to + k * NORM_BWD_THREADS, row + c, 16);
  }
}

/* A thread's weights: in registers as they are stored, unless that is f32 beside a narrower T. */
template <class T> struct norm_held_weights {
  enum { N = pack<T>::N };
  pack<T> kept[NORM_BWD_PACKS];
  bool same;
  __device__ norm_held_weights(const tigon_norm_bwd_problem &p, const team &t, int first)
      : same(p.w && p.w_dtype == p.dtype) {
#pragma unroll
    for (int k = 0; k < NORM_BWD_PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      kept[k] = same && c < (int)p.cols ? load_pack((const T *)p.w + c) : zero_pack<T>();
    }
  }
  template <bool OFFSET> __device__ void get(const tigon_norm_bwd_problem &p, int k, int c, float (&w)[N]) const {
    if (same) {
      unpack(kept[k], w);
#pragma unroll
      for (int j = 0; OFFSET && j < N; ++j) w[j] += p.w_offset;
    } else {
      norm_weights<T>(p.w, p.w_dtype, p.w_offset, c, w);
    }
  }
};

/* The teams' sums of a thread's columns in the order of the teams, into to[column of the block]. Barriers are within. */
template <int N>
__device__ inline void norm_join_teams(const team &t, float *to, const float (&sums)[NORM_BWD_PACKS * N]) {
  for (int i = 0; i < t.count; ++i) {
    __syncthreads();
    if (t.index != i) continue;
#pragma unroll
    for (int k = 0; k < NORM_BWD_PACKS; ++k)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float *sum = &to[(k * t.threads + t.rank) * N + j];
        *sum = i == 0 ? sums[k * N + j] : *sum + sums[k * N + j];
      }
  }
  __syncthreads();
}

/* Columns of a team's block from `first` on, `width` at most. */
__device__ static inline void norm_store_slab(float *slab, const float *sums, int64_t first, int64_t width,
                                              int64_t cols) {
  const int64_t left = cols - first < width ? cols - first : width;
  for (int64_t c = threadIdx.x; c < left; c += blockDim.x) slab[first + c] = sums[c];
}

template <class T, norm_kind KIND>
__device__ inline void norm_bwd_held(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  constexpr int N = pack<T>::N, PACKS = NORM_BWD_PACKS, STREAMS = KIND == NORM_ADD_RMS ? 3 : 2;
  constexpr int STAGES = NORM_BWD_STAGES, STREAM = PACKS * NORM_BWD_THREADS;
  constexpr bool CENTERS = KIND == NORM_LAYER;
  constexpr int VALUES = CENTERS ? 2 : 1;
  __shared__ team_space<VALUES> space;
  __shared__ cluster_space<VALUES> shared;
  const team t = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const bool rounds = !CENTERS && norm_rounds<T>(p.casting);
  const int width = t.threads * PACKS * N, first = cl.rank * width, cols = (int)p.cols;
  const int64_t range = blockIdx.x / cl.size;
  int64_t begin, end;
  tigon_plan_range(p.space.rows, walk.ranges, range, &begin, &end);
  const norm_held_weights<T> weights(p, t, first);
  float dw[PACKS * N] = {0}, db[CENTERS ? PACKS * N : 1] = {0};

  /* Rows of this team, STAGES - 1 of them ahead. */
  int64_t ahead = begin + t.index;
  int stage_ahead = 0;
  auto fetch = [&]() {
    if (ahead < end) {
      uint4 *stage = norm_stages + (stage_ahead * STREAMS) * STREAM + threadIdx.x;
      norm_fetch(stage, row_of<T>(p.space, p.dy, ahead), t, first, cols);
      norm_fetch(stage + STREAM, row_of<T>(p.space, p.x, ahead), t, first, cols);
      if (KIND == NORM_ADD_RMS && p.ds.data)
        norm_fetch(stage + 2 * STREAM, row_of<T>(p.space, p.ds, ahead), t, first, cols);
    }
    __pipeline_commit();
    ahead += t.count;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < STAGES - 1; ++i) fetch();

  int turn = 0, stage_now = 0;
  float next_rstd = begin + t.index < end ? p.rstd[begin + t.index] : 0, next_center = 0;
  if (CENTERS && begin + t.index < end) next_center = p.mean[begin + t.index];
  int64_t r = begin + t.index;
  for (; r < end; r += t.count) {
    const float rstd = next_rstd, center = next_center;
    if (r + t.count < end) {
      next_rstd = p.rstd[r + t.count];
      if (CENTERS) next_center = p.mean[r + t.count];
    }
    fetch();
    __pipeline_wait_prior(STAGES - 1);
    const uint4 *stage = norm_stages + (stage_now * STREAMS) * STREAM + threadIdx.x;
    stage_now = stage_now + 1 == STAGES ? 0 : stage_now + 1;
    float g[PACKS * N], xhat[PACKS * N], sums[VALUES] = {0}; /* of g * xhat, of g */
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      if (c >= cols) continue;
      float a[N], b[N], w[N];
      unpack(pack_of<T>(stage[k * NORM_BWD_THREADS]), a);
      unpack(pack_of<T>(stage[STREAM + k * NORM_BWD_THREADS]), b);
      weights.template get<!CENTERS>(p, k, c, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int i = k * N + j;
        g[i] = a[j] * w[j];
        xhat[i] = (CENTERS ? b[j] - center : b[j]) * rstd;
        sums[0] = fmaf(g[i], xhat[i], sums[0]);
        dw[i] = fmaf(a[j], rounds ? rounded<T>(xhat[i]) : xhat[i], dw[i]);
        if constexpr (CENTERS) sums[1] += g[i], db[i] += a[j];
      }
    }
    team_all<op_sum, true>(t, space, turn, sums);
    cluster_all<op_sum>(cl, shared, turn, sums);
    turn ^= 1;
    const float mean = sums[0] / (float)p.cols, mean_g = CENTERS ? sums[VALUES - 1] / (float)p.cols : 0;
    T *dx = row_of<T>(p.space, p.dx, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      if (c >= cols) continue;
      float out[N], ds[N];
      const bool adds = KIND == NORM_ADD_RMS && p.ds.data;
      if (adds) unpack(pack_of<T>(stage[2 * STREAM + k * NORM_BWD_THREADS]), ds);
#pragma unroll
      for (int j = 0; j < N; ++j)
        out[j] = rstd * fmaf(-xhat[k * N + j], mean, g[k * N + j] - mean_g) + (adds ? ds[j] : 0);
      store_pack(dx + c, packed<T>(out));
    }
  }
  column_sum_may_begin();
  __pipeline_wait_prior(0);
  team_catch_up(t, r - t.index < end);

  /* In the stages' memory. */
  if (p.dw || (CENTERS && p.db)) {
    float *sums = (float *)norm_stages, *slab = p.slabs + range * VALUES * p.cols;
    norm_join_teams<N>(t, sums, dw);
    if constexpr (CENTERS) norm_join_teams<N>(t, sums + width, db);
    norm_store_slab(slab, sums, first, width, p.cols);
    if constexpr (CENTERS) norm_store_slab(slab + p.cols, sums + width, first, width, p.cols);
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
  int64_t begin, end;
  tigon_plan_range(p.space.rows, walk.ranges, range, &begin, &end);
  float *dw = adds_up ? p.slabs + range * VALUES * p.cols : NULL, *db = dw + (CENTERS ? p.cols : 0);
  int turn = 0;
  for (int64_t r = begin; r < end; ++r, turn ^= 1) {
    const T *dy = row_of<T>(p.space, p.dy, r), *x = row_of<T>(p.space, p.x, r);
    const T *ds = KIND == NORM_ADD_RMS && p.ds.data ? row_of<T>(p.space, p.ds, r) : NULL;
    T *dx = row_of<T>(p.space, p.dx, r);
    const float rstd = p.rstd[r], center = CENTERS ? p.mean[r] : 0;
    double all[VALUES] = {0};
    norm_strips(at, p.cols, step, all, [&](int64_t i, float(&part)[VALUES]) {
      float a[N], b[N], w[N];
      norm_load<T>(dy + i, a);
      norm_load<T>(x + i, b);
      norm_weights<T>(p.w, p.w_dtype, p.w_offset, i, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (CENTERS) b[j] -= center;
        part[0] = fmaf(a[j] * w[j], b[j] * rstd, part[0]);
        if constexpr (CENTERS) part[1] = fmaf(a[j], w[j], part[1]);
      }
    });
    float sums[VALUES]; /* of g * xhat, of g */
#pragma unroll
    for (int i = 0; i < VALUES; ++i) sums[i] = (float)all[i];
    team_all<op_sum>(t, space, turn, sums);
    cluster_all<op_sum>(cl, shared, turn, sums);
    const float mean = sums[0] / (float)p.cols, mean_g = CENTERS ? sums[VALUES - 1] / (float)p.cols : 0;
    for (int64_t c = at; c < p.cols; c += step) {
      float a[N], b[N], w[N], out[N], add[N];
      norm_load<T>(dy + c, a);
      norm_load<T>(x + c, b);
      norm_weights<T>(p.w, p.w_dtype, p.w_offset, c, w);
      if (ds) norm_load<T>(ds + c, add);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (CENTERS) b[j] -= center;
        const float g = CENTERS ? fmaf(a[j], w[j], -mean_g) : a[j] * w[j];
        out[j] = rstd * fmaf(-b[j] * rstd, mean, g);
        if (ds) out[j] += add[j];
        if (!adds_up) continue;
        const float term = a[j] * norm_xhat<T>(b[j], rstd, rounds);
        dw[c + j] = r == begin ? term : dw[c + j] + term;
        if (CENTERS) db[c + j] = r == begin ? a[j] : db[c + j] + a[j];
      }
      norm_store<T>(dx + c, out);
    }
  }
  column_sum_may_begin();
  cluster_end(cl);
}

#endif
