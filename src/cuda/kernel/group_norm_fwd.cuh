/* group_norm forward.
 * `plain`: a block holds a dense row in registers.
 * `held`: the same for rows of any pitch, or for a block's share of a row. Both read a row once.
 * `walked`: a row of any size, run and alignment is cut into parts. A row of one part is stored at once. Otherwise `store` joins the
 *   statistics of the parts. */
#ifndef TIGON_CUDA_KERNEL_GROUP_NORM_FWD_CUH
#define TIGON_CUDA_KERNEL_GROUP_NORM_FWD_CUH

#include "cuda/kernel/group_norm.cuh"
#include "cuda/kernel/norm_part.cuh"

/* Stores mean and rstd if `stores`. Returns rstd. */
__device__ static inline float group_statistics(const tigon_group_norm_fwd_problem &p, int64_t row, bool stores,
                                                const norm_moments &m) {
  const float rstd = norm_rsqrt_mean(m.variance, 1, p.eps);
  if (p.mean && stores) p.mean[row] = m.center + m.rest;
  if (p.rstd && stores) p.rstd[row] = rstd;
  return rstd;
}

/* The elements of w or b for a lane's packs. */
template <class T, int PACKS>
__device__ inline void group_fetch(const group_plain &p, const void *v, float absent, int first, T (&to)[PACKS]) {
#pragma unroll
  for (int k = 0; k < PACKS; ++k) to[k] = from_f32<T>(absent);
  if (!v) return;
  const unsigned channel = blockIdx.x * p.channels;
#pragma unroll
  for (int k = 0; k < PACKS; ++k)
    if (k * WARP < p.packs - first) to[k] = ((const T *)v)[channel + __umulhi(2 * (first + k * WARP), p.channel_of)];
}

/* Block (group, batch). A warp's packs lie side by side, and a lane has every 32nd of them. So their addresses differ by constants. */
template <class T, int PACKS> __device__ inline void group_fwd_plain(const group_plain &p) {
  constexpr int N = pack<T>::N, SPAN = PACKS * WARP; /* packs of a warp */
  __shared__ float4 parts[MOST_WARPS];
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, warps = (int)blockDim.x / WARP;
  const int first = warp * SPAN + lane, left = p.packs - first;
  const int64_t row = (int64_t)blockIdx.y * gridDim.x + blockIdx.x, at = row * p.packs + first;
  const uint4 *x = (const uint4 *)p.x + at;
  uint4 kept[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    kept[k] = uint4{0, 0, 0, 0};
    if (k * WARP < left) kept[k] = x[k * WARP];
  }
  T w[PACKS], b[PACKS]; /* loaded while the sums are made */
  group_fetch(p, p.w, 1, first, w);
  group_fetch(p, p.b, 0, first, b);
  const auto elements = [&](int of_warp) { return (float)(N * max(0, min(SPAN, p.packs - of_warp * SPAN))); };
  norm_part a = norm_part_of<T>(kept, WARP, left);
  norm_part_join(a, (float)(N * max(0, min(PACKS, (left + WARP - 1) / WARP))), elements(warp));
  const float count = (float)(N * p.packs);
  if (warps > 1) {
    if (lane == 0) parts[warp] = make_float4(a.center, a.sum, a.squares, 0);
    __syncthreads();
    const int other = lane & (warps - 1);
    const float4 of = parts[other];
    a = norm_part{of.x, of.y, of.z};
    norm_part_join(a, elements(other), count, warps);
  }
  const float off = a.sum * norm_share(count), squares = fmaf(-a.sum, off, a.squares);
  const float rstd = norm_rsqrt_mean(squares < 0 ? 0 : squares, count, p.eps), rest = -off * rstd;
  if (p.mean && threadIdx.x == 0) p.mean[row] = a.center + off;
  if (p.rstd && threadIdx.x == 0) p.rstd[row] = rstd;
  uint4 *y = (uint4 *)p.y + at;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    if (k * WARP >= left) continue;
    const float weight = to_f32(w[k]), scale = rstd * weight, shift = fmaf(rest, weight, to_f32(b[k]));
    float v[N];
    keep_packed(kept[k]);
    unpack_again<T>(kept[k], v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = fmaf(v[j] - a.center, scale, shift);
    store_pack((T *)(y + k * WARP), packed<T>(v));
  }
}

/* MIXED: channels lie end to end, and a pack may cross them. */
template <class T, int PACKS, bool MIXED>
__device__ inline void group_fwd_held(const tigon_group_norm_fwd_problem &p, const group_walk &walk) {
  constexpr int N = pack<T>::N, E = MIXED ? N : 1;
  __shared__ team_space<1> space;
  __shared__ team_space<2> pair_space;
  __shared__ cluster_space<1> shared;
  __shared__ cluster_space<2> pair_shared;
  const team t = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const int run = (int)p.run, count = (int)(p.channels * p.run), first = cl.rank * walk.share;
  const int own = first + t.rank, end = first + walk.share < count / N ? first + walk.share : count / N; /* packs */
  const group_cursor start = group_at(own * N, run), step = group_at(t.threads * N, run);
  const int64_t row = (int64_t)(blockIdx.x / cl.size) * t.count + t.index;
  if (row >= p.batch * p.groups) return; /* the whole team returns, never a block of a cluster */
  const int64_t batch = row / p.groups, channel = (row - batch * p.groups) * p.channels;
  const T *x = group_row<T>(p.x, batch, channel);
  uint4 kept[PACKS];
  group_cursor at = start;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    kept[k] = own + k * t.threads < end ? *(const uint4 *)(x + at.c * p.x.channel_pitch + at.i) : uint4{0, 0, 0, 0};
    group_advance(at, step, run);
  }
  float sum[1] = {0}, sums[2] = {0, 0};
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    float v[N], part = 0;
    unpack(pack_of<T>(kept[k]), v);
#pragma unroll
    for (int j = 0; j < N; ++j) part += v[j];
    sum[0] += part;
  }
  team_all<op_sum>(t, space, 0, sum);
  cluster_all<op_sum>(cl, shared, 0, sum);
  keep_packed(kept);
  const float center = norm_center(sum[0] / (float)count);
#pragma unroll
  for (int k = 0; k < PACKS; ++k)
    if (own + k * t.threads < end) norm_add_pack<T>(kept[k], center, sums);
  team_all<op_sum>(t, pair_space, 0, sums);
  cluster_all<op_sum>(cl, pair_shared, 0, sums);
  keep_packed(kept);
  const norm_moments m = norm_moments_of(center, sums[0], sums[1], (float)count);
  const float rstd = group_statistics(p, row, t.rank == 0 && cl.rank == 0, m), rest = -m.rest * rstd;
  T *y = group_row<T>(p.y, batch, channel);
  at = start;
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    if (own + k * t.threads < end) {
      float v[N], w[E], b[E];
      unpack(pack_of<T>(kept[k]), v);
      group_parameters(p.w, p.w_dtype, channel, at, run, 1, w);
      group_parameters(p.b, p.b_dtype, channel, at, run, 0, b);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = fmaf(fmaf(v[j] - center, rstd, rest), w[j % E], b[j % E]);
      store_pack(y + at.c * p.y.channel_pitch + at.i, packed<T>(v));
    }
    group_advance(at, step, run);
  }
  cluster_end(cl);
}

/* ---- walked ---- */

/* The sums of d = x - center and of d^2 over a thread's elements of a part. */
template <class T, int N>
__device__ inline void group_differences(const T *x, int64_t pitch, const group_box &box, const team &t, float center,
                                         float (&sums)[2]) {
  double all[2] = {0, 0};
  for (int64_t c = box.first + t.index; c < box.last; c += t.count)
    norm_add_differences<T, N>(x + c * pitch, center, box.begin + t.rank * N, box.end, (int64_t)t.threads * N, all);
  sums[0] = (float)all[0], sums[1] = (float)all[1];
}

/* The moments of a part, by the whole block. The center is the mean of the threads' first elements. If the sums show that the part's mean
 * is too far from it, they are made again about that mean. */
template <class T, int N>
__device__ inline norm_moments group_moments(const T *x, int64_t pitch, const group_box &box, const team &t,
                                             const team &all, team_space<2> &space, int &turn) {
  float sums[2] = {0, 0};
  const int64_t c = box.first + t.index, i = box.begin + t.rank * N;
  if (c < box.last && i < box.end) {
    float v[N];
    norm_load<T>(x + c * pitch + i, v);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[0] += v[j];
    sums[1] = N;
  }
  team_all<op_sum>(all, space, turn, sums);
  turn ^= 1;
  float center = norm_center(sums[0] / sums[1]);
  for (bool again = false;; again = true) {
    group_differences<T, N>(x, pitch, box, t, center, sums);
    team_all<op_sum>(all, space, turn, sums);
    turn ^= 1;
    if (again || !norm_far(sums[0], sums[1], box.count())) break;
    center = norm_center(center + sums[0] / box.count());
  }
  return norm_moments_of(center, sums[0], sums[1], box.count());
}

/* The moments of a row from those of its parts, about the mean of the first part (Chan, Golub & LeVeque 1983,
 * doi:10.1080/00031305.1983.10483115). */
template <int N>
__device__ inline norm_moments group_join(const tigon_group_norm_fwd_problem &p, const group_walk &walk,
                                          const group_stats *parts, const team &all, team_space<2> &space, int &turn) {
  const double pivot = isfinite(parts[0].mean) ? parts[0].mean : 0;
  const float count = (float)(p.channels * p.run);
  float sums[2] = {0, 0};
  for (int64_t i = threadIdx.x; i < walk.parts; i += blockDim.x)
    sums[0] = fmaf(group_part<N>(walk, p.channels, p.run, i).count(), (float)(parts[i].mean - pivot), sums[0]);
  team_all<op_sum>(all, space, turn, sums);
  turn ^= 1;
  const float step = sums[0] / count;
  sums[0] = sums[1] = 0;
  for (int64_t i = threadIdx.x; i < walk.parts; i += blockDim.x) {
    const float d = (float)(parts[i].mean - pivot) - step;
    sums[1] += (float)parts[i].squares + group_part<N>(walk, p.channels, p.run, i).count() * d * d;
  }
  team_all<op_sum>(all, space, turn, sums);
  turn ^= 1;
  const double mean = pivot + (double)step;
  const float center = norm_center((float)mean), variance = sums[1] / count;
  return norm_moments{center, (float)(mean - (double)center), variance};
}

template <class T, int N>
__device__ inline void group_store(const tigon_group_norm_fwd_problem &p, int64_t batch, int64_t channel,
                                   const group_box &box, const team &t, const norm_moments &m, float rstd) {
  const T *x = group_row<T>(p.x, batch, channel);
  T *y = group_row<T>(p.y, batch, channel);
  const float rest = -m.rest * rstd;
  for (int64_t c = box.first + t.index; c < box.last; c += t.count) {
    const float w = group_parameter(p.w, p.w_dtype, channel + c, 1),
                b = group_parameter(p.b, p.b_dtype, channel + c, 0);
    const T *from = x + c * p.x.channel_pitch;
    T *to = y + c * p.y.channel_pitch;
#pragma unroll 2
    for (int64_t i = box.begin + t.rank * N; i < box.end; i += (int64_t)t.threads * N) {
      float v[N];
      norm_load<T>(from + i, v);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = fmaf(fmaf(v[j] - m.center, rstd, rest), w, b);
      norm_store<T>(to + i, v);
    }
  }
}

/* N: the elements of a pack if runs are aligned and have whole packs, else 1. */
template <class T, int N>
__device__ inline void group_fwd_walked(const tigon_group_norm_fwd_problem &p, const group_walk &walk, bool joins) {
  __shared__ team_space<2> space;
  const team t = team_of(walk.team), all = team_of((int)blockDim.x);
  int turn = 0;
  for (int64_t task = blockIdx.x; task < walk.rows * walk.parts; task += gridDim.x) {
    const int64_t part = task % walk.parts, row = walk.first + task / walk.parts;
    const int64_t batch = row / p.groups, channel = (row - batch * p.groups) * p.channels;
    const group_box box = group_part<N>(walk, p.channels, p.run, part);
    group_stats *parts = (group_stats *)walk.handed + (task - part);
    const norm_moments m =
        joins ? group_join<N>(p, walk, parts, all, space, turn)
              : group_moments<T, N>(group_row<T>(p.x, batch, channel), p.x.channel_pitch, box, t, all, space, turn);
    if (joins || walk.parts == 1) {
      const float rstd = group_statistics(p, row, part == 0 && threadIdx.x == 0, m);
      group_store<T, N>(p, batch, channel, box, t, m, rstd);
    } else if (threadIdx.x == 0) {
      parts[part].mean = (double)m.center + (double)m.rest;
      parts[part].squares = (double)m.variance * (double)box.count();
    }
  }
}

#endif
