/* Rows of the norms that are too wide for a block's registers, backward. dw and the weights stay in registers. A block, or the blocks of a
 * cluster, sweep a row twice out of shared memory. A row's sums are read only after the sums of the next row were posted. So their way from
 * warp to warp costs no time, and no warp waits at a barrier. Streams that are read twice have several stages. ds, which is added at the
 * end, has one. */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_STAGED_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_STAGED_CUH

#include "cuda/kernel/element.cuh"
#include "cuda/kernel/norm_bwd.cuh"

/* Words of a pack. A word is two elements of 16 bits. One word is unpacked at a time, so that a thread's 128 registers are enough. */
__device__ static inline unsigned word_of(const uint4 &v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <class T, norm_kind KIND, bool PLAIN> struct norm_staged {
  static constexpr int N = pack<T>::N, EACH = N / 4, PACKS = NORM_STAGED_PACKS, THREADS = NORM_STAGED_THREADS;
  static constexpr int STAGES = NORM_STAGED_STAGES, STREAM = PACKS * THREADS, AHEAD = STAGES - 2;
  static constexpr int APART = THREADS * N; /* columns between a thread's packs */
  static constexpr bool CENTERS = KIND == NORM_LAYER, ADDS = KIND == NORM_ADD_RMS;
  static constexpr int VALUES = CENTERS ? 2 : 1;

  const tigon_norm_bwd_problem &p;
  const bool rounds;
  const int own; /* the thread's first column */
  float w[PACKS * N], dw[PACKS * N], db[CENTERS ? PACKS * N : 1];

  /* Packs past the row's end are zeros in all stages. So sums need no branches. */
  __device__ norm_staged(const tigon_norm_bwd_problem &problem, int rank)
      : p(problem), rounds(!CENTERS && norm_rounds<T>(problem.casting)),
        own((rank * STREAM + (int)threadIdx.x) * N), w{0}, dw{0}, db{0} {
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      float of_pack[N] = {0};
      if (has(k)) {
        norm_weights<T>(p.w, p.w_dtype, p.w_offset, own + k * APART, of_pack);
      } else {
        for (int i = 0; i < 2 * STAGES; ++i) norm_stages[i * STREAM + k * THREADS + threadIdx.x] = uint4{0, 0, 0, 0};
      }
#pragma unroll
      for (int j = 0; j < N; ++j) w[k * N + j] = of_pack[j];
    }
  }

  __device__ bool has(int k) const { return own + k * APART < (int)p.cols; }
  __device__ T *row(const tigon_rows &t, int64_t r) const { return norm_row_at<T, PLAIN>(p.space, t, r) + own; }

  __device__ void fetch(uint4 *stage, int64_t r) const {
    const T *dy = row(p.dy, r), *x = row(p.x, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (!has(k)) continue;
      __pipeline_memcpy_async(stage + k * THREADS, dy + k * APART, 16);
      __pipeline_memcpy_async(stage + STREAM + k * THREADS, x + k * APART, 16);
    }
  }

  __device__ uint4 *added(int k) const { return norm_stages + (2 * STAGES * PACKS + k) * THREADS + threadIdx.x; }
  __device__ void fetch_added(int64_t r) const {
    if (!ADDS) return;
    const T *ds = row(p.ds, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      if (has(k)) __pipeline_memcpy_async(added(k), ds + k * APART, 16);
  }

  /* Calls f(i, dy, dy * w, x - mean) for the words i of the thread's pack k. */
  template <class F> __device__ void each(const uint4 *stage, int k, float center, F f) const {
    const uint4 dy = stage[k * THREADS], x = stage[STREAM + k * THREADS];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float a[EACH], b[EACH], g[EACH];
      widen(word_of(dy, i), a, T());
      widen(word_of(x, i), b, T());
#pragma unroll
      for (int j = 0; j < EACH; ++j) {
        if (CENTERS) b[j] -= center;
        g[j] = a[j] * w[k * N + i * EACH + j];
      }
      f(i, a, g, b);
    }
  }

  /* The thread's part of the sums of g * xhat and of g. dw and db get their terms. */
  __device__ void sums(const uint4 *stage, float rstd, float center, float (&to)[VALUES]) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) to[i] = 0;
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
      each(stage, k, has(k) ? center : 0, [&](int i, const float(&a)[EACH], const float(&g)[EACH], float(&b)[EACH]) {
        const int at = k * N + i * EACH;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
          b[j] *= rstd;
          norm_gradient<KIND>::add(g[j], b[j], to);
          if constexpr (CENTERS) db[at + j] += a[j];
        }
        float xhat[EACH];
        if constexpr (EACH > 1) widen(narrow(b, T()), xhat, T());
#pragma unroll
        for (int j = 0; j < EACH; ++j) dw[at + j] = fmaf(a[j], EACH > 1 && rounds ? xhat[j] : b[j], dw[at + j]);
      });
  }

  __device__ void put(const uint4 *stage, int64_t r, float rstd, float center, const float (&all)[VALUES],
                      float share) const {
    const norm_gradient<KIND> gradient(rstd, all, share);
    T *dx = row(p.dx, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      unsigned out[4];
      const uint4 add = ADDS ? *added(k) : uint4{0, 0, 0, 0};
      each(stage, k, center, [&](int i, const float(&)[EACH], const float(&g)[EACH], const float(&b)[EACH]) {
        float v[EACH], ds[EACH];
        widen(word_of(add, i), ds, T());
#pragma unroll
        for (int j = 0; j < EACH; ++j) v[j] = gradient.dx(g[j], b[j] * rstd, ADDS ? ds[j] : 0);
        out[i] = narrow(v, T());
      });
      if (has(k)) store_16_bytes(dx + k * APART, uint4{out[0], out[1], out[2], out[3]});
    }
  }

  __device__ void store(float *slab, const float *of) const {
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
      for (int j = 0; has(k) && j < N; j += 4)
        *(float4 *)&slab[own + k * APART + j] =
            make_float4(of[k * N + j], of[k * N + j + 1], of[k * N + j + 2], of[k * N + j + 3]);
  }
};

template <class T, norm_kind KIND, bool PLAIN>
__device__ inline void norm_bwd_staged(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  typedef norm_staged<T, KIND, PLAIN> staged;
  constexpr int VALUES = staged::VALUES, STAGES = staged::STAGES, STAGE = 2 * staged::STREAM;
  constexpr int WARPS = staged::THREADS / WARP;
  constexpr bool CENTERS = staged::CENTERS, ADDS = KIND == NORM_ADD_RMS;
  __shared__ cluster_mail<VALUES, WARPS> mail;
  /* rstd and mean, one copy per warp. In a register they would be equal in all threads. ptxas moves such a value to a uniform register, and
   * that waits for memory at once. */
  __shared__ float scalars[STAGES][WARPS][VALUES];
  const cluster cl = cluster_of_block();
  const int warp = (int)threadIdx.x / WARP;
  staged s(p, cl.rank);
  const int64_t range = blockIdx.x / cl.size, rows = p.space.rows;

  cluster_mail_open(cl, mail);
  int64_t ahead = range;
  int stage_ahead = 0, now = 0, before = 0, turn = 0;
  auto fetch = [&]() {
    __syncwarp(); /* the stage's scalars have been read */
    if (ahead < rows) {
      s.fetch(norm_stages + stage_ahead * STAGE + threadIdx.x, ahead);
      if (threadIdx.x % WARP == 0) {
        __pipeline_memcpy_async(&scalars[stage_ahead][warp][0], p.rstd + ahead, sizeof(float));
        if (CENTERS) __pipeline_memcpy_async(&scalars[stage_ahead][warp][VALUES - 1], p.mean + ahead, sizeof(float));
      }
    }
    __pipeline_commit();
    ahead += walk.ranges;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < staged::AHEAD; ++i) fetch();
  if (ADDS) __pipeline_commit(); /* stands for the row before the first */
  const float share = 1 / (float)p.cols;
  auto center_of = [&](int stage) { return CENTERS ? scalars[stage][warp][VALUES - 1] : 0; };
  auto put = [&](int64_t r) {
    float all[VALUES];
    cluster_take<op_sum>(cl, mail, turn - 1, all);
    s.put(norm_stages + before * STAGE + threadIdx.x, r, scalars[before][warp][0], center_of(before), all, share);
  };
  int64_t r = range;
  for (; r < rows; r += walk.ranges, ++turn) {
    fetch();
    __pipeline_wait_prior(staged::AHEAD + ADDS); /* newer than row r: ds of the row before, and rows ahead */
    __syncwarp();                                /* shows the warp what its first thread has waited for */
    float sums[VALUES];
    s.sums(norm_stages + now * STAGE + threadIdx.x, scalars[now][warp][0], center_of(now), sums);
#pragma unroll
    for (int i = 0; i < VALUES; ++i) sums[i] = warp_all<op_sum>(sums[i]);
    cluster_post(cl, mail, turn, sums);
    if (ADDS) __pipeline_wait_prior(staged::AHEAD);
    if (turn > 0) put(r - walk.ranges);
    if (ADDS) {
      s.fetch_added(r);
      __pipeline_commit();
    }
    before = now;
    now = now + 1 == STAGES ? 0 : now + 1;
  }
  __pipeline_wait_prior(0);
  if (turn > 0) put(r - walk.ranges);
  next_kernel_may_begin();
  if (p.dw || (CENTERS && p.db)) {
    float *slab = p.slabs + range * VALUES * p.cols;
    s.store(slab, s.dw);
    if constexpr (CENTERS) s.store(slab + p.cols, s.db);
  }
  cluster_end(cl);
}

#endif
