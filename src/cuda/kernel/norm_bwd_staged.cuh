/* Rows of the norms backward that are too wide to be held in a block's registers: dw stays there, and a row is swept twice out of shared
 * memory. LATE: the blocks of a cluster share a row, and its sums are waited for after those of the row behind it have been taken, so
 * that their way from block to block costs no time of its own. Only streams that are needed twice are staged: ds comes when it is added. */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_STAGED_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_STAGED_CUH

#include "cuda/kernel/norm_bwd.cuh"

template <class T, norm_kind KIND, bool LATE> struct norm_staged {
  static constexpr int N = pack<T>::N, PACKS = NORM_STAGED_PACKS, THREADS = NORM_STAGED_THREADS;
  static constexpr int STAGES = NORM_STAGED_STAGES, STREAM = PACKS * THREADS, AHEAD = LATE ? STAGES - 2 : STAGES - 1;
  static constexpr bool CENTERS = KIND == NORM_LAYER;
  static constexpr int VALUES = CENTERS ? 2 : 1;

  const tigon_norm_bwd_problem &p;
  const team t;
  const bool rounds;
  const int own, cols; /* the thread's first column */
  float dw[PACKS * N], db[CENTERS ? PACKS * N : 1];

  __device__ norm_staged(const tigon_norm_bwd_problem &problem, int rank)
      : p(problem), t(team_of(THREADS)), rounds(!CENTERS && norm_rounds<T>(problem.casting)),
        own((rank * STREAM + (int)threadIdx.x) * N), cols((int)problem.cols), dw{0}, db{0} {}

  __device__ bool has(int k) const { return own + k * THREADS * N < cols; }
  __device__ int column(int k) const { return own + k * THREADS * N; }

  __device__ void fetch(uint4 *stage, int64_t r) const {
    const T *dy = row_of<T>(p.space, p.dy, r), *x = row_of<T>(p.space, p.x, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (!has(k)) continue;
      __pipeline_memcpy_async(stage + k * THREADS, dy + column(k), 16);
      __pipeline_memcpy_async(stage + STREAM + k * THREADS, x + column(k), 16);
    }
  }

  /* The thread's dy and w, x - mean. */
  __device__ void get(const uint4 *stage, int k, float center, float (&a)[N], float (&b)[N], float (&w)[N]) const {
    unpack(pack_of<T>(stage[k * THREADS]), a);
    unpack(pack_of<T>(stage[STREAM + k * THREADS]), b);
    norm_weights<T>(p.w, p.w_dtype, p.w_offset, column(k), w);
#pragma unroll
    for (int j = 0; CENTERS && j < N; ++j) b[j] -= center;
  }

  /* Of the block's columns: of g * xhat, of g. */
  __device__ void sums(const uint4 *stage, int64_t r, float (&to)[VALUES]) {
    const float rstd = __ldg(p.rstd + r), center = CENTERS ? __ldg(p.mean + r) : 0;
#pragma unroll
    for (int i = 0; i < VALUES; ++i) to[i] = 0;
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (!has(k)) continue;
      float a[N], b[N], w[N];
      get(stage, k, center, a, b, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        to[0] = fmaf(a[j] * w[j], b[j] * rstd, to[0]);
        dw[k * N + j] = fmaf(a[j], norm_xhat<T>(b[j], rstd, rounds), dw[k * N + j]);
        if constexpr (CENTERS) {
          to[1] = fmaf(a[j], w[j], to[1]);
          db[k * N + j] += a[j];
        }
      }
    }
  }

  __device__ void put(const uint4 *stage, int64_t r, const float (&all)[VALUES]) const {
    const float rstd = __ldg(p.rstd + r), center = CENTERS ? __ldg(p.mean + r) : 0;
    const float mean = all[0] / (float)p.cols, mean_g = CENTERS ? all[VALUES - 1] / (float)p.cols : 0;
    const T *ds = KIND == NORM_ADD_RMS && p.ds.data ? row_of<T>(p.space, p.ds, r) : NULL;
    T *dx = row_of<T>(p.space, p.dx, r);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      if (!has(k)) continue;
      float a[N], b[N], w[N], add[N];
      if (ds) unpack(load_pack(ds + column(k)), add);
      get(stage, k, center, a, b, w);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = CENTERS ? fmaf(a[j], w[j], -mean_g) : a[j] * w[j];
        a[j] = rstd * fmaf(-b[j] * rstd, mean, g) + (ds ? add[j] : 0);
      }
      store_pack(dx + column(k), packed<T>(a));
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

template <class T, norm_kind KIND, bool LATE>
__device__ inline void norm_bwd_staged(const tigon_norm_bwd_problem &p, const norm_walk &walk) {
  typedef norm_staged<T, KIND, LATE> staged;
  constexpr int VALUES = staged::VALUES, STAGES = staged::STAGES, STAGE = 2 * staged::STREAM;
  __shared__ team_space<VALUES> space;
  __shared__ cluster_mail<VALUES> mail;
  const cluster cl = LATE ? cluster_of_block() : cluster{0, 1};
  staged s(p, cl.rank);
  const int64_t range = blockIdx.x / cl.size;
  int64_t begin, end;
  tigon_plan_range(p.space.rows, walk.ranges, range, &begin, &end);

  if (LATE) cluster_mail_open(mail);
  int64_t ahead = begin;
  int stage_ahead = 0, now = 0, before = 0, turn = 0;
  auto fetch = [&]() {
    if (ahead < end) s.fetch(norm_stages + stage_ahead * STAGE + threadIdx.x, ahead);
    __pipeline_commit();
    ++ahead;
    stage_ahead = stage_ahead + 1 == STAGES ? 0 : stage_ahead + 1;
  };
  for (int i = 0; i < staged::AHEAD; ++i) fetch();
  float all[VALUES];
  for (int64_t r = begin; r < end; ++r, ++turn) {
    fetch();
    __pipeline_wait_prior(staged::AHEAD);
    float sums[VALUES];
    s.sums(norm_stages + now * STAGE + threadIdx.x, r, sums);
    team_all<op_sum>(s.t, space, turn & 1, sums);
    if constexpr (LATE) {
      cluster_post(cl, mail, turn, sums);
      if (r > begin) cluster_take<op_sum>(cl, mail, turn - 1, all);
      if (r > begin) s.put(norm_stages + before * STAGE + threadIdx.x, r - 1, all);
    } else {
      s.put(norm_stages + now * STAGE + threadIdx.x, r, sums);
    }
    before = now;
    now = now + 1 == STAGES ? 0 : now + 1;
  }
  if (LATE && begin < end) {
    cluster_take<op_sum>(cl, mail, turn - 1, all);
    s.put(norm_stages + before * STAGE + threadIdx.x, end - 1, all);
  }
  column_sum_may_begin();
  if (p.dw || (staged::CENTERS && p.db)) {
    float *slab = p.slabs + range * VALUES * p.cols;
    s.store(slab, s.dw);
    if constexpr (staged::CENTERS) s.store(slab + p.cols, s.db);
  }
  cluster_end(cl);
}

#endif
