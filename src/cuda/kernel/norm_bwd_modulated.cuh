/* Rows of modulated_rms_norm, backward: as rms_norm with the weights f = (1 + scale) * (w + w_offset). Rows that share a scale are a group.
 * Their sums are P = sum of dy * xhat and Q = sum of dy. Then dw += (1 + scale) * P, dscale = (w + w_offset) * P and dshift = Q.
 * Block i of n has groups i, i + n, ..., and stores their dscale and dshift. Or n blocks have parts of one group, and block i has its rows
 * i, i + n, .... A slab is [3, cols]: dw, and for a part also dscale and dshift. norm_bwd.cuh explains `held` and `walked`. */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_MODULATED_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_MODULATED_CUH

#include "cuda/kernel/norm_bwd.cuh"

enum { MODULATED_SUMS = 3 };

/* The rows of team `index` of `count` in a block: whole groups, or rows of a part. */
struct modulated_rows {
  int64_t row, left; /* left, for whole groups: rows of the group from `row` on */

  __device__ modulated_rows(const tigon_norm_bwd_problem &p, const norm_walk &walk, int64_t range, int index)
      : row(walk.parts == 0 ? (range + index * walk.ranges) * p.share
                            : range / walk.parts * p.share + range % walk.parts + index * walk.parts),
        left(p.share) {}
  /* Past the last row. */
  __device__ static int64_t end(const tigon_norm_bwd_problem &p, const norm_walk &walk, int64_t range) {
    return walk.parts == 0 ? p.space.rows : (range / walk.parts + 1) * p.share;
  }
  __device__ bool last_of_group(const norm_walk &walk) const { return walk.parts == 0 && left == 1; }
  __device__ void next(const tigon_norm_bwd_problem &p, const norm_walk &walk, int count) {
    if (walk.parts > 0) {
      row += count * walk.parts;
    } else if (--left > 0) {
      ++row;
    } else {
      row += 1 + (count * walk.ranges - 1) * p.share;
      left = p.share;
    }
  }
  /* After the last row: how many rows more the block's first team had. */
  __device__ int64_t turns_missed(const tigon_norm_bwd_problem &p, const norm_walk &walk, int index,
                                  int64_t end) const {
    const int64_t apart = walk.parts == 0 ? walk.ranges * p.share : walk.parts;
    return row - index * apart >= end ? 0 : walk.parts == 0 ? p.share : 1;
  }
};

/* Stores v in N elements of a row in f32 or T, or adds it to them, with one rounding. */
template <class T, int N>
__device__ inline void modulated_put(void *row, tigon_dtype dtype, int64_t c, bool adds, const float (&v)[N]) {
  if (!row) return;
  float out[N];
#pragma unroll
  for (int j = 0; j < N; ++j) out[j] = v[j];
  if constexpr (N == 1) {
    if (adds) out[0] += load_any(row, c, dtype);
    store_any(row, c, dtype, out[0]);
  } else if (dtype == TIGON_F32) {
    float *to = (float *)row + c;
#pragma unroll
    for (int j = 0; j < N; j += 4) {
      float4 old = {0, 0, 0, 0};
      if (adds) old = *(const float4 *)(to + j);
      *(float4 *)(to + j) = make_float4(out[j] + old.x, out[j + 1] + old.y, out[j + 2] + old.z, out[j + 3] + old.w);
    }
  } else {
    T *to = (T *)row + c;
    if (adds) {
      float old[N];
      unpack(load_pack(to), old);
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] += old[j];
    }
    store_pack(to, packed<T>(out));
  }
}

/* Uses a group's sums of N columns. `whole` sums go to the outputs. Others go into `product`, which becomes dscale's part. dw gets its
 * term. */
template <class T, int N>
__device__ inline void modulated_finish(const tigon_norm_bwd_problem &p, int64_t group, int64_t c, bool whole,
                                        float (&product)[N], const float (&sum)[N], float (&dw)[N]) {
  float scale[N], w[N];
  norm_vector<T>(norm_group_row(p.groups, p.scale, p.scale_dtype, group), p.scale_dtype, 0, c, scale);
  norm_weights<T>(p.w, p.w_dtype, p.w_offset, c, w);
#pragma unroll
  for (int j = 0; j < N; ++j) {
    dw[j] = fmaf(1 + scale[j], product[j], dw[j]);
    product[j] *= w[j];
  }
  if (!whole) return;
  modulated_put<T>(norm_group_row(p.groups, p.dscale, p.dscale_dtype, group), p.dscale_dtype, c, p.accumulate_dscale,
                   product);
  modulated_put<T>(norm_group_row(p.groups, p.dshift, p.dshift_dtype, group), p.dshift_dtype, c, p.accumulate_dscale,
                   sum);
}

/* (1 + scale) * (w + w_offset) of N columns. */
template <class T, int N>
__device__ inline void modulated_weights(const tigon_norm_bwd_problem &p, int64_t group, int64_t c, float (&f)[N]) {
  float scale[N];
  norm_vector<T>(norm_group_row(p.groups, p.scale, p.scale_dtype, group), p.scale_dtype, 0, c, scale);
  norm_weights<T>(p.w, p.w_dtype, p.w_offset, c, f);
#pragma unroll
  for (int j = 0; j < N; ++j) f[j] *= 1 + scale[j];
}

__device__ static inline bool modulated_adds_up(const tigon_norm_bwd_problem &p) {
  return p.dw || p.dscale.data || p.dshift.data;
}

template <class T, bool PLAIN>
__device__ inline void modulated_bwd_held(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  constexpr int N = pack<T>::N, PACKS = NORM_BWD_PACKS, STAGES = NORM_BWD_STAGES, STREAM = PACKS * NORM_BWD_THREADS;
  __shared__ team_space<1> space;
  __shared__ cluster_space<1> shared;
  const team t = team_of(walk.team);
  const cluster cl = PLAIN ? cluster{0, 1} : cluster_of_block();
  const bool rounds = norm_rounds<T>(p.casting), whole = walk.parts == 0;
  const int first = cl.rank * t.threads * PACKS * N, cols = (int)p.cols;
  const int64_t range = blockIdx.x / cl.size, end = modulated_rows::end(p, walk, range);
  float product[PACKS * N] = {0}, sum[PACKS * N] = {0};
  float4 *dw =
      (float4 *)(norm_stages + STAGES * 2 * STREAM) + threadIdx.x; /* for whole groups, [PACKS * N / 4][threads] */
#pragma unroll
  for (int i = 0; whole && i < PACKS * N / 4; ++i) dw[i * NORM_BWD_THREADS] = make_float4(0, 0, 0, 0);

  modulated_rows ahead(p, walk, range, t.index), now = ahead;
  int stage_ahead = 0;
  auto fetch = [&]() {
    if (ahead.row < end) {
      uint4 *stage = norm_stages + stage_ahead * 2 * STREAM + threadIdx.x;
      norm_fetch(stage, norm_row_at<T, PLAIN>(p.space, p.dy, ahead.row), t, first, cols);
      norm_fetch(stage + STREAM, norm_row_at<T, PLAIN>(p.space, p.x, ahead.row), t, first, cols);
      ahead.next(p, walk, t.count);
    }
    __pipeline_commit();
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < STAGES; ++i) fetch();

  const float share = 1 / (float)p.cols;
  int turn = 0, stage_now = 0;
  float f[PACKS * N] = {0}, next_rstd = now.row < end ? p.rstd[now.row] : 0;
  for (bool fresh = true; now.row < end;) {
    const int64_t row = now.row;
    const bool last = now.last_of_group(walk);
    const float rstd = next_rstd;
    now.next(p, walk, t.count);
    if (now.row < end) next_rstd = p.rstd[now.row];
    if (fresh) {
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        const int c = first + (k * t.threads + t.rank) * N;
        float of_pack[N] = {0};
        if (c < cols) modulated_weights<T>(p, row / p.share, c, of_pack);
#pragma unroll
        for (int j = 0; j < N; ++j) f[k * N + j] = of_pack[j];
      }
    }
    __pipeline_wait_prior(STAGES - 1);
    const uint4 *stage = norm_stages + stage_now * 2 * STREAM + threadIdx.x;
    stage_now = stage_now + 1 == STAGES ? 0 : stage_now + 1;
    uint4 dy[PACKS], x[PACKS];
    float dot[1] = {0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (first + (k * t.threads + t.rank) * N >= cols) continue;
      dy[k] = stage[k * NORM_BWD_THREADS];
      x[k] = stage[STREAM + k * NORM_BWD_THREADS];
      float a[N], b[N];
      unpack(pack_of<T>(dy[k]), a);
      unpack(pack_of<T>(x[k]), b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        b[j] *= rstd;
        norm_gradient<NORM_MODULATED>::add(a[j] * f[k * N + j], b[j], dot);
      }
      norm_round<T>(b, rounds);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        product[k * N + j] = fmaf(a[j], b[j], product[k * N + j]);
        sum[k * N + j] += a[j];
      }
    }
    fetch(); /* the row's stage is free: it fills while the sum is made */
    team_all<op_sum, true>(t, space, turn, dot);
    if (!PLAIN) cluster_all<op_sum>(cl, shared, turn, dot);
    turn ^= 1;
    const norm_gradient<NORM_MODULATED> gradient(rstd, dot, share);
    T *dx = norm_row_at<T, PLAIN>(p.space, p.dx, row);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      if (c >= cols) continue;
      float a[N], b[N], out[N];
      unpack(pack_of<T>(dy[k]), a);
      unpack(pack_of<T>(x[k]), b);
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] = gradient.dx(a[j] * f[k * N + j], b[j] * rstd);
      store_pack(dx + c, packed<T>(out));
    }
    fresh = last;
    if (!fresh) continue;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      if (c >= cols) continue;
      float of_product[N], of_sum[N], of_dw[N];
#pragma unroll
      for (int j = 0; j < N; ++j) {
        of_product[j] = product[k * N + j], of_sum[j] = sum[k * N + j];
        of_dw[j] = ((float *)&dw[(k * N + j) / 4 * NORM_BWD_THREADS])[j % 4];
        product[k * N + j] = sum[k * N + j] = 0;
      }
      modulated_finish<T>(p, row / p.share, c, true, of_product, of_sum, of_dw);
#pragma unroll
      for (int j = 0; j < N; j += 4)
        dw[(k * N + j) / 4 * NORM_BWD_THREADS] = make_float4(of_dw[j], of_dw[j + 1], of_dw[j + 2], of_dw[j + 3]);
    }
  }
  next_kernel_may_begin();
  __pipeline_wait_prior(0);
  team_catch_up(t, now.turns_missed(p, walk, t.index, end));

  if (modulated_adds_up(p)) {
    float *of_teams = (float *)norm_stages, *slab = p.slabs + range * MODULATED_SUMS * p.cols + first;
    if (whole) {
#pragma unroll
      for (int i = 0; i < PACKS * N; ++i) f[i] = ((float *)&dw[i / 4 * NORM_BWD_THREADS])[i % 4];
    } else {
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        const int c = first + (k * t.threads + t.rank) * N;
        if (c >= cols) continue;
        float of_product[N], of_dw[N] = {0};
        const float unused[N] = {0};
#pragma unroll
        for (int j = 0; j < N; ++j) of_product[j] = product[k * N + j];
        modulated_finish<T>(p, range / walk.parts, c, false, of_product, unused, of_dw);
#pragma unroll
        for (int j = 0; j < N; ++j) product[k * N + j] = of_product[j], f[k * N + j] = of_dw[j];
      }
    }
    norm_join_teams<N>(t, of_teams, f, cols - first, [&](int c, float all) { slab[c] = all; });
    if (!whole) {
      norm_join_teams<N>(t, of_teams, product, cols - first, [&](int c, float all) { slab[p.cols + c] = all; });
      norm_join_teams<N>(t, of_teams, sum, cols - first, [&](int c, float all) { slab[2 * p.cols + c] = all; });
    }
  }
  cluster_end(cl);
}

/* The team is the block. */
template <class T, int N>
__device__ inline void modulated_bwd_walked(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  __shared__ team_space<1> space;
  __shared__ cluster_space<1> shared;
  const team t = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const bool rounds = norm_rounds<T>(p.casting), adds_up = modulated_adds_up(p);
  const int64_t at = (int64_t)(cl.rank * t.threads + t.rank) * N, step = (int64_t)cl.size * t.threads * N;
  const int64_t range = blockIdx.x / cl.size, end = modulated_rows::end(p, walk, range);
  const bool whole = walk.parts == 0;
  float *slab = adds_up ? p.slabs + range * MODULATED_SUMS * p.cols : NULL;
  int turn = 0;
  bool finished = false, fresh = true; /* dw's sum has begun; the group's sum has not */
  for (modulated_rows now(p, walk, range, 0); now.row < end; now.next(p, walk, 1), turn ^= 1) {
    const T *dy = row_of<T>(p.space, p.dy, now.row), *x = row_of<T>(p.space, p.x, now.row);
    T *dx = row_of<T>(p.space, p.dx, now.row);
    const float rstd = p.rstd[now.row];
    const bool last = whole ? now.last_of_group(walk) : now.row + walk.parts >= end;
    const int64_t group = now.row / p.share;
    double all[1] = {0};
    norm_strips(at, p.cols, step, all, [&](int64_t i, float(&part)[1]) {
      float a[N], b[N], f[N];
      norm_load<T>(dy + i, a);
      norm_load<T>(x + i, b);
      modulated_weights<T>(p, group, i, f);
#pragma unroll
      for (int j = 0; j < N; ++j) norm_gradient<NORM_MODULATED>::add(a[j] * f[j], b[j] * rstd, part);
    });
    float dot[1] = {(float)all[0]};
    team_all<op_sum>(t, space, turn, dot);
    cluster_all<op_sum>(cl, shared, turn, dot);
    const norm_gradient<NORM_MODULATED> gradient(rstd, dot, 1 / (float)p.cols);
    for (int64_t c = at; c < p.cols; c += step) {
      float a[N], b[N], f[N], out[N], product[N], dw[N];
      norm_load<T>(dy + c, a);
      norm_load<T>(x + c, b);
      modulated_weights<T>(p, group, c, f);
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] = gradient.dx(a[j] * f[j], b[j] * rstd);
      norm_store<T>(dx + c, out);
      if (!adds_up) continue;
      float *of_product = slab + p.cols + c, *of_sum = slab + 2 * p.cols + c;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        product[j] = a[j] * norm_xhat<T>(b[j], rstd, rounds) + (fresh ? 0 : of_product[j]);
        if (!fresh) a[j] += of_sum[j];
        dw[j] = last && finished ? slab[c + j] : 0;
      }
      if (last) modulated_finish<T>(p, group, c, whole, product, a, dw);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        of_product[j] = product[j], of_sum[j] = a[j];
        if (last) slab[c + j] = dw[j];
      }
    }
    finished = finished || last;
    fresh = last;
  }
  next_kernel_may_begin();
  cluster_end(cl);
}

#endif
