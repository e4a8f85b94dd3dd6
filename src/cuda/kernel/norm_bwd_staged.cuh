/* Rows of the norms backward that are too wide to be held in a block's registers: dw stays there, and a row is swept twice out of shared
 * memory, by a block or by the blocks of a cluster. Its sums are taken after those of the row behind it have been posted, so that their
 * way from warp to warp costs no time of its own, and no warp waits at a barrier. Only streams that are needed twice are staged: ds is
 * on its way to the L2 meanwhile, and comes when it is added. */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_STAGED_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_STAGED_CUH

#include "cuda/kernel/chunk.cuh"
#include "cuda/kernel/norm_bwd.cuh"

/* Words of a pack: two elements of 16 bits, which alone are unpacked at a time, so that a thread's 64 registers are enough. */
__device__ static inline unsigned word_of(const uint4 &v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <class T, norm_kind KIND, bool PLAIN> struct norm_staged {
  static constexpr int N = pack<T>::N, EACH = N / 4, PACKS = NORM_STAGED_PACKS, THREADS = NORM_STAGED_THREADS;
  static constexpr int STAGES = NORM_STAGED_STAGES, STREAM = PACKS * THREADS, AHEAD = STAGES - 2;
  static constexpr bool CENTERS = KIND == NORM_LAYER;
  static constexpr int VALUES = CENTERS ? 2 : 1;

  const tigon_norm_bwd_problem &p;
  const bool rounds;
  const int own, cols; /* the thread's first column */
  float dw[PACKS * N], db[CENTERS ? PACKS * N : 1];

  __device__ norm_staged(const tigon_norm_bwd_problem &problem, int rank)
      : p(problem), rounds(!CENTERS && norm_rounds<T>(problem.casting)), own((rank * STREAM + (int)threadIdx.x) * N),
        cols((int)problem.cols), dw{0}, db{0} {}

  __device__ bool has(int k) const { return own + k * THREADS * N < cols; }
  __device__ int column(int k) const { return own + k * THREADS * N; }
  __device__ bool adds() const { return KIND == NORM_ADD_RMS && p.ds.data; }

  __device__ void fetch(uint4 *stage, int64_t r) const {
    const T *dy = norm_row_at<T, PLAIN>(p.space, p.dy, r), *x = norm_row_at<T, PLAIN>(p.space, p.x, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (!has(k)) continue;
      __pipeline_memcpy_async(stage + k * THREADS, dy + column(k), 16);
      __pipeline_memcpy_async(stage + STREAM + k * THREADS, x + column(k), 16);
      if (adds()) asm volatile("prefetch.global.L2 [%0];" ::"l"(norm_row_at<T, PLAIN>(p.space, p.ds, r) + column(k)));
    }
  }

  /* f(i, dy, dy * w, x - mean) of the thread's columns column(k) + i, a word's. */
  template <class F> __device__ void each(const uint4 *stage, int k, float center, F f) const {
    const uint4 dy = stage[k * THREADS], x = stage[STREAM + k * THREADS];
    constexpr tigon_dtype of_t = sizeof(T) < 4 ? TIGON_BF16 : TIGON_F32; /* asked is only whether it is f32 */
    float w[N];
    norm_weights<T>(p.w, PLAIN ? of_t : p.w_dtype, p.w_offset, column(k), w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float a[EACH], b[EACH], g[EACH];
      widen(word_of(dy, i), a, T());
      widen(word_of(x, i), b, T());
#pragma unroll
      for (int j = 0; j < EACH; ++j) {
        if (CENTERS) b[j] -= center;
        g[j] = a[j] * w[i * EACH + j];
      }
      f(i * EACH, a, g, b);
    }
  }

  /* The thread's part of the sums of g * xhat, of g; dw and db get their terms. */
  __device__ void sums(const uint4 *stage, float rstd, float center, float (&to)[VALUES]) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) to[i] = 0;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (!has(k)) continue;
      each(stage, k, center, [&](int at, const float(&a)[EACH], const float(&g)[EACH], float(&b)[EACH]) {
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
          b[j] *= rstd;
          to[0] = fmaf(g[j], b[j], to[0]);
          if constexpr (CENTERS) to[1] += g[j], db[k * N + at + j] += a[j];
        }
        float xhat[EACH];
        if constexpr (EACH > 1) widen(narrow(b, T()), xhat, T());
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
          float &to_dw = dw[k * N + at + j];
          to_dw = fmaf(a[j], EACH > 1 && rounds ? xhat[j] : b[j], to_dw);
        }
      });
    }
  }

  __device__ void put(const uint4 *stage, int64_t r, float rstd, float center, const float (&all)[VALUES],
                      float share) const {
    const float mean_g = CENTERS ? all[VALUES - 1] * share : 0, slope = rstd * (all[0] * share);
    T *dx = norm_row_at<T, PLAIN>(p.space, p.dx, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (!has(k)) continue;
      float add[N], out[N];
      if (adds()) unpack(load_pack(norm_row_at<T, PLAIN>(p.space, p.ds, r) + column(k)), add);
      each(stage, k, center, [&](int at, const float(&)[EACH], const float(&g)[EACH], const float(&b)[EACH]) {
#pragma unroll
        for (int j = 0; j < EACH; ++j)
          out[at + j] = rstd * fmaf(-b[j], slope, g[j] - mean_g) + (adds() ? add[at + j] : 0);
      });
      store_pack(dx + column(k), packed<T>(out));
    }
  }

  __device__ void store(float *slab, const float *of) const {
#pragma unroll
    for (int k = 0; k < PACKS; ++k)
#pragma unroll
      for (int j = 0; has(k) && j < N; j += 4)
        *(float4 *)&slab[column(k) + j] =
            make_float4(of[k * N + j], of[k * N + j + 1], of[k * N + j + 2], of[k * N + j + 3]);
  }
};

template <class T, norm_kind KIND, bool PLAIN>
__device__ inline void norm_bwd_staged(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  typedef norm_staged<T, KIND, PLAIN> staged;
  constexpr int VALUES = staged::VALUES, STAGES = staged::STAGES, STAGE = 2 * staged::STREAM;
  constexpr bool CENTERS = staged::CENTERS;
  __shared__ cluster_mail<VALUES> mail;
  const cluster cl = cluster_of_block();
  staged s(p, cl.rank);
  const int64_t range = blockIdx.x / cl.size, rows = p.space.rows;

  cluster_mail_open(cl, mail);
  int64_t ahead = range;
  int stage_ahead = 0, now = 0, before = 0, turn = 0;
  auto fetch = [&]() {
    if (ahead < rows) s.fetch(norm_stages + stage_ahead * STAGE + threadIdx.x, ahead);
    __pipeline_commit();
    ahead += walk.ranges;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < staged::AHEAD; ++i) fetch();
  const float share = 1 / (float)p.cols;
  float rstd_before = 0, center_before = 0, next_rstd = range < rows ? p.rstd[range] : 0;
  float next_center = CENTERS && range < rows ? p.mean[range] : 0;
  auto put = [&](int64_t r) {
    float all[VALUES];
    cluster_take<op_sum>(cl, mail, turn - 1, all);
    s.put(norm_stages + before * STAGE + threadIdx.x, r, rstd_before, center_before, all, share);
  };
  int64_t r = range;
  for (; r < rows; r += walk.ranges, ++turn) {
    const float rstd = next_rstd, center = next_center;
    if (r + walk.ranges < rows) {
      next_rstd = p.rstd[r + walk.ranges];
      if (CENTERS) next_center = p.mean[r + walk.ranges];
    }
    fetch();
    __pipeline_wait_prior(staged::AHEAD);
    float sums[VALUES];
    s.sums(norm_stages + now * STAGE + threadIdx.x, rstd, center, sums);
#pragma unroll
    for (int i = 0; i < VALUES; ++i) sums[i] = warp_all<op_sum>(sums[i]);
    cluster_post(cl, mail, turn, sums);
    if (turn > 0) put(r - walk.ranges);
    rstd_before = rstd, center_before = center;
    before = now;
    now = now + 1 == STAGES ? 0 : now + 1;
  }
  if (turn > 0) put(r - walk.ranges);
  column_sum_may_begin();
  if (p.dw || (CENTERS && p.db)) {
    float *slab = p.slabs + range * VALUES * p.cols;
    s.store(slab, s.dw);
    if constexpr (CENTERS) s.store(slab + p.cols, s.db);
  }
  cluster_end(cl);
}

#endif
