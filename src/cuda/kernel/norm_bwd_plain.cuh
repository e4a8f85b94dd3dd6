/* Plain rows of the norms that a block holds, backward: as norm_bwd_held() (norm_bwd.cuh). They have two lines of parameters, addresses that
 * advance by a row's step, and w + w_offset in registers. */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_PLAIN_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_PLAIN_CUH

#include "cuda/kernel/norm_bwd.cuh"

/* A thread's place in a tensor's row, and the step to its team's next row. */
template <class T> struct norm_cursor {
  T *at;
  int64_t step;
  __device__ norm_cursor(const void *data, int pitch, int first, int rows_apart, int column)
      : at((T *)data + (int64_t)first * pitch + column), step((int64_t)rows_apart * pitch) {}
  __device__ void next() { at += step; }
};

template <class T, norm_kind KIND> struct norm_plain_bwd {
  static constexpr int N = pack<T>::N, PACKS = NORM_BWD_PACKS, BLOCK = NORM_BWD_THREADS, STREAM = PACKS * BLOCK;
  static constexpr int STAGES = NORM_BWD_STAGES;
  static constexpr bool CENTERS = KIND == NORM_LAYER, ADDS = KIND == NORM_ADD_RMS;
  static constexpr int VALUES = CENTERS ? 2 : 1, STREAMS = ADDS ? 3 : 2; /* streams of a stage */
  static constexpr int STAGE = STREAMS * STREAM;

  const norm_held &p;
  const team t;
  const int apart, own; /* columns between a thread's packs; its first column */
  float w[PACKS * N], dw[PACKS * N], db[CENTERS ? PACKS * N : 1];

  __device__ norm_plain_bwd(const norm_held &problem)
      : p(problem), t{1 << p.team_bits, (int)threadIdx.x & ((1 << p.team_bits) - 1), (int)threadIdx.x >> p.team_bits,
                      BLOCK >> p.team_bits},
        apart(N << p.team_bits), own(t.rank * N), dw{0}, db{0} {}

  __device__ bool has(int k) const { return own + k * apart < p.cols; }

  /* Packs past the row's end are zeros, also in all stages. So sums need no branches. */
  __device__ void load_weights(uint4 *stages) {
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      uint4 bits = {0, 0, 0, 0};
      if (!has(k)) {
#pragma unroll 1
        for (int i = 0; i < STAGES * STREAMS; ++i) stages[i * STREAM + k * BLOCK] = bits;
      } else if (p.w) {
        bits = __ldg((const uint4 *)((const T *)p.w + own + k * apart));
      }
      float of_pack[N];
      unpack(pack_of<T>(bits), of_pack);
#pragma unroll
      for (int j = 0; j < N; ++j) w[k * N + j] = has(k) ? of_pack[j] + p.w_offset : 0;
    }
  }

  /* The thread's part of a row's sums of g * xhat and of g. dw and db get their terms. */
  template <bool ROUNDS>
  __device__ void sum_row(const uint4 *stage, float rstd, float center, float (&g)[PACKS * N], float (&xhat)[PACKS * N],
                          float (&sums)[VALUES]) {
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      const float of_pack = has(k) ? center : 0;
      float a[N], b[N];
      unpack(pack_of<T>(stage[k * BLOCK]), a);
      unpack(pack_of<T>(stage[STREAM + k * BLOCK]), b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const int i = k * N + j;
        g[i] = a[j] * w[i];
        xhat[i] = b[j] = (CENTERS ? b[j] - of_pack : b[j]) * rstd;
        norm_gradient<KIND>::add(g[i], xhat[i], sums);
        if constexpr (CENTERS) db[i] += a[j];
      }
      norm_round<T>(b, ROUNDS);
#pragma unroll
      for (int j = 0; j < N; ++j) dw[k * N + j] = fmaf(a[j], b[j], dw[k * N + j]);
    }
    /* Kept in registers from here on. Otherwise the compiler computes half of them again from the packs. */
#pragma unroll
    for (int i = 0; i < PACKS * N; ++i) asm volatile("" : "+f"(g[i]), "+f"(xhat[i]));
  }

  __device__ void put_row(T *dx, float rstd, const float (&g)[PACKS * N], const float (&xhat)[PACKS * N],
                          const uint4 (&added)[PACKS], const float (&sums)[VALUES]) const {
    const norm_gradient<KIND> gradient(rstd, sums, p.share);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (!has(k)) continue;
      float out[N], ds[N];
      if (ADDS) unpack(pack_of<T>(added[k]), ds);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        out[j] = gradient.dx(g[k * N + j], xhat[k * N + j], ADDS ? ds[j] : 0);
      }
      store_pack(dx + k * apart, packed<T>(out));
    }
  }

  template <bool ROUNDS> __device__ void walk(team_space<VALUES> &space) {
    const int first = (int)blockIdx.x + t.index * (int)gridDim.x, step = (int)gridDim.x * t.count;
    norm_cursor<const T> dy(p.dy, p.dy_pitch, first, step, own), x(p.x, p.x_pitch, first, step, own);
    norm_cursor<const T> ds(p.ds, p.ds_pitch, first, step, own);
    norm_cursor<T> dx(p.dx, p.dx_pitch, first, step, own);
    uint4 *const stages = norm_stages + threadIdx.x, *const last_stage = stages + (STAGES - 1) * STAGE;
    uint4 *stage_ahead = stages;
    int ahead = first;
    auto fetch = [&]() {
#pragma unroll
      for (int k = 0; k < PACKS; ++k) {
        if (ahead >= p.rows || !has(k)) continue;
        __pipeline_memcpy_async(stage_ahead + k * BLOCK, dy.at + k * apart, 16);
        __pipeline_memcpy_async(stage_ahead + STREAM + k * BLOCK, x.at + k * apart, 16);
        if (ADDS) __pipeline_memcpy_async(stage_ahead + 2 * STREAM + k * BLOCK, ds.at + k * apart, 16);
      }
      __pipeline_commit();
      ahead += step;
      dy.next(), x.next();
      if (ADDS) ds.next();
      stage_ahead = stage_ahead == last_stage ? stages : stage_ahead + STAGE;
    };
#pragma unroll 1
    for (int i = 0; i < STAGES; ++i) fetch();
    float next_rstd = first < p.rows ? p.rstd[first] : 0, next_center = CENTERS && first < p.rows ? p.mean[first] : 0;
    load_weights(stages);

    const uint4 *stage = stages;
    int r = first, turn = 0;
    for (; r < p.rows; r += step, turn ^= 1) {
      const float rstd = next_rstd, center = next_center;
      if (r + step < p.rows) {
        next_rstd = p.rstd[r + step];
        if (CENTERS) next_center = p.mean[r + step];
      }
      __pipeline_wait_prior(STAGES - 1);
      float g[PACKS * N], xhat[PACKS * N], sums[VALUES] = {0};
      sum_row<ROUNDS>(stage, rstd, center, g, xhat, sums);
      uint4 added[PACKS];
#pragma unroll
      for (int k = 0; k < PACKS; ++k)
        if (ADDS) added[k] = stage[2 * STREAM + k * BLOCK];
      stage = stage == last_stage ? stages : stage + STAGE;
      fetch(); /* the row's stage is free: it fills while the sums are made */
      team_all<op_sum, true>(t, space, turn, sums);
      put_row(dx.at, rstd, g, xhat, added, sums);
      dx.next();
    }
    next_kernel_may_begin();
    __pipeline_wait_prior(0);
    team_catch_up(t, r - t.index * (int)gridDim.x < p.rows);
  }

  /* A single team stores its columns. Several teams are added in the memory of the stages. */
  __device__ void store(const float (&sums)[PACKS * N], float *slab) const {
    if (t.count > 1) {
      norm_join_teams<N>(t, (float *)norm_stages, sums, p.cols, [&](int c, float sum) { slab[c] = sum; });
      return;
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
      for (int j = 0; has(k) && j < N; j += 4)
        *(float4 *)&slab[own + k * apart + j] =
            make_float4(sums[k * N + j], sums[k * N + j + 1], sums[k * N + j + 2], sums[k * N + j + 3]);
  }
};

template <class T, norm_kind KIND> __device__ inline void norm_bwd_plain(const norm_held &p) {
  typedef norm_plain_bwd<T, KIND> plain;
  __shared__ team_space<plain::VALUES> space;
  plain rows(p);
  if (!plain::CENTERS && norm_rounds<T>(p.casting))
    rows.template walk<true>(space);
  else
    rows.template walk<false>(space);
  if (!p.slabs) return;
  float *slab = p.slabs + (int64_t)blockIdx.x * plain::VALUES * p.cols;
  rows.store(rows.dw, slab);
  if constexpr (plain::CENTERS) rows.store(rows.db, slab + p.cols);
}

#endif
