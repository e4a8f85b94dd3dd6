/* group_norm backward. A block has a group and a part of the batch, and goes through their rows. It adds up dw and db over them and stores
 * them once, as a slab. column_sums() adds the slabs up in order.
 * `held`: rows are copied into shared memory some rows ahead. Each thread copies its own packs, and each pack has its two sums in
 *   registers. The blocks of a cluster share rows that are wider than a block holds.
 * `walked`: a row of any size, run and alignment is cut into parts, with a channel per team. `store` makes dx of a row of several parts,
 *   from the sums of all parts. */
#ifndef TIGON_CUDA_KERNEL_GROUP_NORM_BWD_CUH
#define TIGON_CUDA_KERNEL_GROUP_NORM_BWD_CUH

#include <cuda_pipeline.h>

#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/group_norm.cuh"

extern __shared__ uint4 group_stages[];

/* Turns a block's sums of dw and db per unit (a pack or an element) into sums per channel, in slab [2, channels of all groups]. The block
 * with a channel's first unit adds the sums of later blocks of the cluster. `sums` has room for four times `units` floats. */
template <class STORE>
__device__ inline void group_channel_sums(const cluster &cl, float *sums, int units, int all_units, int run,
                                          STORE store) {
  float *x = sums, *dy = sums + units, *channel_x = dy + units, *channel_dy = channel_x + units;
  const int u0 = cl.rank * units, u1 = u0 + units < all_units ? u0 + units : all_units;
  const int first = u0 / run, channels = u1 > u0 ? (u1 - 1) / run - first + 1 : 0;
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  const bool alone = run < WARP; /* a thread has a channel; else a warp has it */
  for (int c = alone ? (int)threadIdx.x : warp; c < channels; c += alone ? (int)blockDim.x : (int)blockDim.x / WARP) {
    const int begin = (first + c) * run > u0 ? (first + c) * run - u0 : 0;
    const int end = (first + c + 1) * run < u1 ? (first + c + 1) * run - u0 : u1 - u0;
    float a = 0, b = 0;
    for (int u = begin + (alone ? 0 : lane); u < end; u += alone ? 1 : WARP) a += x[u], b += dy[u];
    if (!alone) a = warp_all<op_sum>(a), b = warp_all<op_sum>(b);
    if (alone || lane == 0) channel_x[c] = a, channel_dy[c] = b;
  }
  __syncthreads();
#if __CUDA_ARCH__ >= 900
  cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
  if (cl.size > 1) group.sync();
#endif
  for (int c = threadIdx.x; c < channels; c += blockDim.x) {
    if ((first + c) * run < u0) continue;
    float a = channel_x[c], b = channel_dy[c];
#if __CUDA_ARCH__ >= 900
    for (int r = cl.rank + 1; r < cl.size && r * units < (first + c + 1) * run; ++r)
      a += *group.map_shared_rank(channel_x, r), b += *group.map_shared_rank(channel_dy, r);
#endif
    store(first + c, a, b);
  }
}

/* MIXED: channels lie end to end, and a pack may cross them. Sums are then per element. */
template <class T, int PACKS, int STAGES, bool MIXED>
__device__ inline void group_bwd_held(const tigon_group_norm_bwd_problem &p, const group_walk &walk) {
  constexpr int N = pack<T>::N, E = MIXED ? N : 1, THREADS = GROUP_BWD_THREADS, STREAM = PACKS * THREADS;
  constexpr bool HOLDS = !MIXED && PACKS == 2; /* keeps dy and xhat in f32 if there are registers; else as they came */
  __shared__ team_space<2> space;
  __shared__ cluster_space<2> shared;
  const team t = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const int64_t task = blockIdx.x / cl.size, group = task / walk.ranges, range = task % walk.ranges;
  const int64_t channel = group * p.channels;
  const int run = (int)p.run, count = (int)(p.channels * p.run), first = cl.rank * walk.share;
  const int own = first + t.rank, stop = first + walk.share < count / N ? first + walk.share : count / N; /* packs */
  const group_cursor start = group_at(own * N, run), step = group_at(t.threads * N, run);

  float w[PACKS * E], dw[PACKS * E] = {0}, db[PACKS * E] = {0};
  group_cursor at = start;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    float of_pack[E];
#pragma unroll
    for (int e = 0; e < E; ++e) of_pack[e] = 0;
    if (own + k * t.threads < stop) group_parameters(p.w, p.w_dtype, channel, at, run, 1, of_pack);
#pragma unroll
    for (int e = 0; e < E; ++e) w[k * E + e] = of_pack[e];
    group_advance(at, step, run);
  }

  /* The block has batches range, range + ranges, .... So all blocks sweep memory together. */
  const int64_t apart = walk.ranges * t.count;
  int64_t batch = range + t.index * walk.ranges, ahead = batch; /* STAGES rows */
  const T *next_dy[PACKS], *next_x[PACKS];                      /* packs of row `ahead` */
  T *dx[PACKS];
  at = start;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    next_dy[k] = group_row<T>(p.dy, batch, channel + at.c) + at.i;
    next_x[k] = group_row<T>(p.x, batch, channel + at.c) + at.i;
    dx[k] = group_row<T>(p.dx, batch, channel + at.c) + at.i;
    group_advance(at, step, run);
  }
  int64_t dy_step = apart * p.dy.batch_pitch, x_step = apart * p.x.batch_pitch, dx_step = apart * p.dx.batch_pitch;
  asm("" : "+l"(dy_step), "+l"(x_step), "+l"(dx_step)); /* keeps these products: they are not computed in every row */
  auto fetch = [&](uint4 *stage) {
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (ahead < p.batch && own + k * t.threads < stop) {
        __pipeline_memcpy_async(stage + k * THREADS, next_dy[k], 16);
        __pipeline_memcpy_async(stage + STREAM + k * THREADS, next_x[k], 16);
      }
      next_dy[k] += dy_step, next_x[k] += x_step;
    }
    __pipeline_commit();
    ahead += apart;
  };
  uint4 *const first_stage = group_stages + threadIdx.x, *const last_stage = first_stage + (STAGES - 1) * 2 * STREAM;
  for (uint4 *stage = first_stage; stage <= last_stage; stage += 2 * STREAM) fetch(stage);

  const float share = 1 / (float)count;
  int turn = 0;
  uint4 *stage = first_stage;
  int64_t row = batch * p.groups + group;
  float next_mean = 0, next_rstd = 0;
  if (batch < p.batch) next_mean = p.mean[row], next_rstd = p.rstd[row];
  for (; batch < p.batch; batch += apart) {
    const float mean = next_mean, rstd = next_rstd;
    row += apart * p.groups;
    if (batch + apart < p.batch) next_mean = p.mean[row], next_rstd = p.rstd[row];
    __pipeline_wait_prior(STAGES - 1);
    uint4 dy_bits[PACKS], x_bits[PACKS];
    float dy[HOLDS ? PACKS : 1][N], xhat[HOLDS ? PACKS : 1][N];
    auto widen = [&](int k) {
      float(&a)[N] = dy[HOLDS ? k : 0], (&b)[N] = xhat[HOLDS ? k : 0];
      unpack(pack_of<T>(dy_bits[k]), a);
      unpack(pack_of<T>(x_bits[k]), b);
#pragma unroll
      for (int j = 0; j < N; ++j) b[j] = (b[j] - mean) * rstd;
    };
    float sums[2] = {0, 0}; /* sums of g and of g * xhat */
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * t.threads >= stop) continue;
      dy_bits[k] = stage[k * THREADS], x_bits[k] = stage[STREAM + k * THREADS];
      widen(k);
      float of_dy[E], of_x[E];
#pragma unroll
      for (int e = 0; e < E; ++e) of_dy[e] = of_x[e] = 0;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float a = dy[HOLDS ? k : 0][j];
        of_dy[j % E] += a;
        of_x[j % E] = fmaf(a, xhat[HOLDS ? k : 0][j], of_x[j % E]);
      }
#pragma unroll
      for (int e = 0; e < E; ++e) {
        dw[k * E + e] += of_x[e], db[k * E + e] += of_dy[e];
        sums[0] = fmaf(w[k * E + e], of_dy[e], sums[0]), sums[1] = fmaf(w[k * E + e], of_x[e], sums[1]);
      }
      if (!HOLDS) keep_packed(dy_bits[k]), keep_packed(x_bits[k]);
    }
    fetch(stage); /* the stage is free: it fills while the sums are made */
    stage = stage == last_stage ? first_stage : stage + 2 * STREAM;
    team_all<op_sum, true>(t, space, turn, sums);
    cluster_all<op_sum>(cl, shared, turn, sums);
    turn ^= 1;
    /* dx = rstd * dy * w - mean_g - xhat * slope */
    const float mean_g = rstd * (sums[0] * share), slope = rstd * (sums[1] * share);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (own + k * t.threads < stop) {
        if (!HOLDS) widen(k);
        float out[N];
#pragma unroll
        for (int j = 0; j < N; ++j)
          out[j] = fmaf(-xhat[HOLDS ? k : 0][j], slope, fmaf(dy[HOLDS ? k : 0][j], rstd * w[k * E + j % E], -mean_g));
        store_pack(dx[k], packed<T>(out));
      }
      dx[k] += dx_step;
    }
  }
  next_kernel_may_begin();
  __pipeline_wait_prior(0);
  team_catch_up(t, batch - t.index * walk.ranges < p.batch);

  if (p.dw || p.db) {
    /* Adds the teams' sums in order, in the memory of the stages. */
    float *all = (float *)group_stages, *slab = p.slabs + range * 2 * p.groups * p.channels;
    const int units = walk.share * E;
    for (int i = 0; i < t.count; ++i) {
      __syncthreads();
      if (t.index != i) continue;
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        if (own + k * t.threads >= stop) continue;
#pragma unroll
        for (int e = 0; e < E; ++e) {
          float *sum = &all[(k * t.threads + t.rank) * E + e];
          sum[0] = i == 0 ? dw[k * E + e] : sum[0] + dw[k * E + e];
          sum[units] = i == 0 ? db[k * E + e] : sum[units] + db[k * E + e];
        }
      }
    }
    __syncthreads();
    group_channel_sums(cl, all, units, count / (N / E), run / (N / E), [&](int c, float a, float b) {
      slab[channel + c] = a;
      slab[p.groups * p.channels + channel + c] = b;
    });
  }
  cluster_end(cl);
}

/* ---- walked ---- */

/* A team's sums of dy * (x - mean) and of dy over a channel's positions [begin, end). Each of its threads gets them. */
template <class T, int N>
__device__ inline void group_line_sums(const T *dy, const T *x, float mean, int64_t begin, int64_t end, const team &t,
                                       team_space<2> &space, int &turn, float (&sums)[2]) {
  double all[2] = {0, 0};
  norm_strips(begin + t.rank * N, end, (int64_t)t.threads * N, all, [&](int64_t i, float(&part)[2]) {
    float a[N], b[N];
    norm_load<T>(dy + i, a);
    norm_load<T>(x + i, b);
#pragma unroll
    for (int j = 0; j < N; ++j) part[0] = fmaf(a[j], b[j] - mean, part[0]), part[1] += a[j];
  });
  sums[0] = (float)all[0], sums[1] = (float)all[1];
  team_all<op_sum>(t, space, turn, sums);
  turn ^= 1;
}

/* dx of a part, from the row's means of g and of g * xhat. */
template <class T, int N>
__device__ inline void group_gradient(const tigon_group_norm_bwd_problem &p, int64_t batch, int64_t group,
                                      const group_box &box, const team &t, float mean_g, float mean_dot) {
  const int64_t channel = group * p.channels, row = batch * p.groups + group;
  const float mean = p.mean[row], rstd = p.rstd[row];
  for (int64_t c = channel + box.first + t.index; c < channel + box.last; c += t.count) {
    const float w = group_parameter(p.w, p.w_dtype, c, 1);
    const T *dy = group_row<T>(p.dy, batch, c), *x = group_row<T>(p.x, batch, c);
    T *dx = group_row<T>(p.dx, batch, c);
#pragma unroll 2
    for (int64_t i = box.begin + t.rank * N; i < box.end; i += (int64_t)t.threads * N) {
      float a[N], b[N];
      norm_load<T>(dy + i, a);
      norm_load<T>(x + i, b);
#pragma unroll
      for (int j = 0; j < N; ++j) a[j] = rstd * fmaf((mean - b[j]) * rstd, mean_dot, fmaf(a[j], w, -mean_g));
      norm_store<T>(dx + i, a);
    }
  }
}

/* A team is a warp or the block. */
template <class T, int N>
__device__ inline void group_bwd_walked(const tigon_group_norm_bwd_problem &p, const group_walk &walk) {
  __shared__ team_space<2> space, line_space;
  const team t = team_of(walk.team), all = team_of((int)blockDim.x);
  const int64_t split = blockIdx.x % walk.splits, task = blockIdx.x / walk.splits, channels = p.groups * p.channels;
  const int64_t group = task / walk.ranges, range = task % walk.ranges, channel = group * p.channels;
  const float count = (float)(p.channels * p.run);
  int64_t begin, end, first_part, last_part;
  tigon_range(p.batch, walk.ranges, range, &begin, &end);
  tigon_range(walk.parts, walk.splits, split, &first_part, &last_part);
  float *slab = p.dw || p.db ? p.slabs + (range * walk.splits + split) * 2 * channels + channel : NULL;
  for (int64_t c = threadIdx.x; slab && c < p.channels; c += blockDim.x) slab[c] = slab[channels + c] = 0;
  __syncthreads();
  int turn = 0, line_turn = 0;
  for (int64_t batch = begin; batch < end; ++batch) {
    const int64_t row = batch * p.groups + group;
    const float mean = p.mean[row], rstd = p.rstd[row];
    for (int64_t part = first_part; part < last_part; ++part) {
      const group_box box = group_part<N>(walk, p.channels, p.run, part);
      float sums[2] = {0, 0}; /* sums of g and of g * xhat */
      for (int64_t c = box.first + t.index; c < box.last; c += t.count) {
        float line[2];
        group_line_sums<T, N>(group_row<T>(p.dy, batch, channel + c), group_row<T>(p.x, batch, channel + c), mean,
                              box.begin, box.end, t, line_space, line_turn, line);
        if (t.rank != 0) continue;
        const float w = group_parameter(p.w, p.w_dtype, channel + c, 1), dot = line[0] * rstd;
        sums[0] = fmaf(w, line[1], sums[0]), sums[1] = fmaf(w, dot, sums[1]);
        if (slab) slab[c] += dot, slab[channels + c] += line[1];
      }
      team_all<op_sum>(all, space, turn, sums);
      turn ^= 1;
      if (walk.parts == 1)
        group_gradient<T, N>(p, batch, group, box, t, sums[0] / count, sums[1] / count);
      else if (threadIdx.x == 0)
        ((float2 *)walk.handed)[row * walk.parts + part] = make_float2(sums[0], sums[1]);
    }
  }
}

/* Runs after `walked`, for rows of several parts: one block per part. */
template <class T, int N>
__device__ inline void group_bwd_store(const tigon_group_norm_bwd_problem &p, const group_walk &walk) {
  __shared__ team_space<2> space;
  const team t = team_of(walk.team), all = team_of((int)blockDim.x);
  const float count = (float)(p.channels * p.run);
  int turn = 0;
  for (int64_t task = blockIdx.x; task < p.batch * p.groups * walk.parts; task += gridDim.x, turn ^= 1) {
    const int64_t part = task % walk.parts, row = task / walk.parts;
    const float2 *handed = (const float2 *)walk.handed + row * walk.parts;
    float sums[2] = {0, 0};
    for (int64_t i = threadIdx.x; i < walk.parts; i += blockDim.x) sums[0] += handed[i].x, sums[1] += handed[i].y;
    team_all<op_sum>(all, space, turn, sums);
    group_gradient<T, N>(p, row / p.groups, row % p.groups, group_part<N>(walk, p.channels, p.run, part), t,
                         sums[0] / count, sums[1] / count);
  }
}

#endif
