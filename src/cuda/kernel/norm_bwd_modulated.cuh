/* Rows of modulated_rms_norm backward: rms_norm's with the weights f = (1 + scale) * (w + w_offset). The rows that share a scale give
 * P = sum of dy * xhat and Q = sum of dy; then dw += (1 + scale) * P, dscale = (w + w_offset) * P and dshift = Q. A range has whole
 * groups of rows that share one, whose dscale and dshift it stores, or a part of one group. A slab is [3, cols]: dw; of a part, dscale
 * and dshift. `held` and `walked` as in norm_bwd.cuh. */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_MODULATED_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_MODULATED_CUH

#include "cuda/kernel/norm_bwd.cuh"

enum { MODULATED_SUMS = 3 };

/* The rows of one team: its groups one after the other, or every count-th row of the part. */
struct modulated_rows {
  int64_t row, group, left, end; /* left: rows of the group from `row` on; end: of groups, or of rows */
  int64_t count;                 /* teams */
  bool whole;

  __device__ modulated_rows(const tigon_norm_bwd_problem &p, const norm_walk &walk, int64_t range, int index, int teams)
      : count(teams), whole(walk.parts == 0) {
    if (whole) {
      tigon_plan_range(p.groups.rows, walk.ranges, range, &group, &end);
      group += index;
      row = group * p.share;
      left = p.share;
    } else {
      group = range / walk.parts;
      tigon_plan_range(p.share, walk.parts, range % walk.parts, &row, &end);
      row += group * p.share + index;
      end += group * p.share;
      left = row < end ? (end - row - 1) / count + 1 : 0;
    }
  }
  __device__ bool more() const { return whole ? group < end : row < end; }
  __device__ bool last() const { return left == 1; } /* of the group, or of the part, for this team */
  /* After the last: rows that the block's first team has had more. */
  __device__ int64_t turns_missed(int index, int64_t share) const {
    return (whole ? group : row) - index >= end ? 0 : whole ? share : 1;
  }
  __device__ void next(int64_t share) {
    row += whole ? 1 : count;
    if (--left > 0 || !whole) return;
    group += count;
    row = group * share;
    left = share;
  }
};

/* v into N elements of a row in f32 or T, or added to them; one rounding. */
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

/* What a group's sums of N columns give: to the outputs where they are `whole`, else into `product`, which becomes dscale's part.
 * dw gets its term. */
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

template <class T> __device__ inline void modulated_bwd_held(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  constexpr int N = pack<T>::N, PACKS = NORM_BWD_PACKS, STAGES = NORM_BWD_STAGES, STREAM = PACKS * NORM_BWD_THREADS;
  __shared__ team_space<1> space;
  __shared__ cluster_space<1> shared;
  const team t = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const bool rounds = norm_rounds<T>(p.casting), adds_up = modulated_adds_up(p), whole = walk.parts == 0;
  const int width = t.threads * PACKS * N, first = cl.rank * width, cols = (int)p.cols;
  const int64_t range = blockIdx.x / cl.size;
  float dw[PACKS * N] = {0}, product[PACKS * N] = {0}, sum[PACKS * N] = {0};

  modulated_rows ahead(p, walk, range, t.index, t.count), now = ahead;
  int stage_ahead = 0;
  auto fetch = [&]() {
    if (ahead.more()) {
      uint4 *stage = norm_stages + stage_ahead * 2 * STREAM + threadIdx.x;
      norm_fetch(stage, row_of<T>(p.space, p.dy, ahead.row), t, first, cols);
      norm_fetch(stage + STREAM, row_of<T>(p.space, p.x, ahead.row), t, first, cols);
      ahead.next(p.share);
    }
    __pipeline_commit();
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < STAGES - 1; ++i) fetch();

  int turn = 0, stage_now = 0;
  float f[PACKS * N];
  for (bool fresh = true; now.more(); now.next(p.share)) {
    const float rstd = p.rstd[now.row];
    fetch();
    if (fresh) {
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        const int c = first + (k * t.threads + t.rank) * N;
        float of_pack[N] = {0};
        if (c < cols) modulated_weights<T>(p, now.group, c, of_pack);
#pragma unroll
        for (int j = 0; j < N; ++j) f[k * N + j] = of_pack[j];
      }
    }
    __pipeline_wait_prior(STAGES - 1);
    const uint4 *stage = norm_stages + stage_now * 2 * STREAM + threadIdx.x;
    stage_now = stage_now + 1 == STAGES ? 0 : stage_now + 1;
    pack<T> dy[PACKS], x[PACKS];
    float dot[1] = {0};
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      dy[k] = x[k] = zero_pack<T>();
      if (first + (k * t.threads + t.rank) * N >= cols) continue;
      dy[k] = *(const pack<T> *)&stage[k * NORM_BWD_THREADS];
      x[k] = *(const pack<T> *)&stage[STREAM + k * NORM_BWD_THREADS];
      float a[N], b[N];
      unpack(dy[k], a);
      unpack(x[k], b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        dot[0] = fmaf(a[j] * f[k * N + j], b[j] * rstd, dot[0]);
        product[k * N + j] = fmaf(a[j], norm_xhat<T>(b[j], rstd, rounds), product[k * N + j]);
        sum[k * N + j] += a[j];
      }
    }
    team_all<op_sum, true>(t, space, turn, dot);
    cluster_all<op_sum>(cl, shared, turn, dot);
    turn ^= 1;
    const float mean = dot[0] / (float)p.cols;
    T *dx = row_of<T>(p.space, p.dx, now.row);
    fresh = whole && now.last();
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const int c = first + (k * t.threads + t.rank) * N;
      if (c >= cols) continue;
      float a[N], b[N], out[N];
      unpack(dy[k], a);
      unpack(x[k], b);
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] = rstd * fmaf(-b[j] * rstd, mean, a[j] * f[k * N + j]);
      store_pack(dx + c, packed<T>(out));
      if (!fresh) continue;
      float of_product[N], of_sum[N], of_dw[N];
#pragma unroll
      for (int j = 0; j < N; ++j)
        of_product[j] = product[k * N + j], of_sum[j] = sum[k * N + j], of_dw[j] = dw[k * N + j];
      modulated_finish<T>(p, now.group, c, true, of_product, of_sum, of_dw);
#pragma unroll
      for (int j = 0; j < N; ++j) dw[k * N + j] = of_dw[j], product[k * N + j] = sum[k * N + j] = 0;
    }
  }
  column_sum_may_begin();
  __pipeline_wait_prior(0);
  team_catch_up(t, now.turns_missed(t.index, p.share));

  if (adds_up) {
    float *sums = (float *)norm_stages, *slab = p.slabs + range * MODULATED_SUMS * p.cols;
    const int left = cols - first < width ? cols - first : width;
    if (whole) {
      norm_join_teams<N>(t, sums, dw);
      norm_store_slab(slab, sums, first, width, p.cols);
    } else {
      norm_join_teams<N>(t, sums, product);
      norm_join_teams<N>(t, sums + width, sum);
      for (int c = threadIdx.x; c < left; c += blockDim.x) {
        float of_product[1] = {sums[c]}, of_dw[1] = {0};
        const float of_sum[1] = {sums[width + c]};
        modulated_finish<T>(p, range / walk.parts, first + c, false, of_product, of_sum, of_dw);
        slab[first + c] = of_dw[0];
        slab[p.cols + first + c] = of_product[0];
        slab[2 * p.cols + first + c] = of_sum[0];
      }
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
  const int64_t range = blockIdx.x / cl.size;
  float *slab = adds_up ? p.slabs + range * MODULATED_SUMS * p.cols : NULL;
  int turn = 0;
  bool finished = false, fresh = true; /* is dw's sum begun; is the group's not */
  for (modulated_rows now(p, walk, range, 0, 1); now.more(); now.next(p.share), turn ^= 1) {
    const T *dy = row_of<T>(p.space, p.dy, now.row), *x = row_of<T>(p.space, p.x, now.row);
    T *dx = row_of<T>(p.space, p.dx, now.row);
    const float rstd = p.rstd[now.row];
    const bool last = now.last();
    double all[1] = {0};
    norm_strips(at, p.cols, step, all, [&](int64_t i, float(&part)[1]) {
      float a[N], b[N], f[N];
      norm_load<T>(dy + i, a);
      norm_load<T>(x + i, b);
      modulated_weights<T>(p, now.group, i, f);
#pragma unroll
      for (int j = 0; j < N; ++j) part[0] = fmaf(a[j] * f[j], b[j] * rstd, part[0]);
    });
    float dot[1] = {(float)all[0]};
    team_all<op_sum>(t, space, turn, dot);
    cluster_all<op_sum>(cl, shared, turn, dot);
    const float mean = dot[0] / (float)p.cols;
    for (int64_t c = at; c < p.cols; c += step) {
      float a[N], b[N], f[N], out[N], product[N], dw[N];
      norm_load<T>(dy + c, a);
      norm_load<T>(x + c, b);
      modulated_weights<T>(p, now.group, c, f);
#pragma unroll
      for (int j = 0; j < N; ++j) out[j] = rstd * fmaf(-b[j] * rstd, mean, a[j] * f[j]);
      norm_store<T>(dx + c, out);
      if (!adds_up) continue;
      float *of_product = slab + p.cols + c, *of_sum = slab + 2 * p.cols + c;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        product[j] = a[j] * norm_xhat<T>(b[j], rstd, rounds) + (fresh ? 0 : of_product[j]);
        if (!fresh) a[j] += of_sum[j];
        dw[j] = last && finished ? slab[c + j] : 0;
      }
      if (last) modulated_finish<T>(p, now.group, c, now.whole, product, a, dw);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        of_product[j] = product[j], of_sum[j] = a[j];
        if (last) slab[c + j] = dw[j];
      }
    }
    finished = finished || last;
    fresh = last;
  }
  column_sum_may_begin();
  cluster_end(cl);
}

#endif
