/* divergence's rows, and its sums over all rows.
 *
 * A row of both sides is read for the largest logits, for the sums of their exponentials, for the terms and for the
 * gradient.
 * `held`: it is read once into the shared memory of a block, or of the blocks of a cluster, where each thread has its own packs.
 * `walked`: it has any width and alignment, and is read each time, from the L2 if that has it. Backward has no sums. Rows with a
 * softcap have kernels of their own, CAP, so that the others keep their registers. */
#include <cuda_pipeline.h>

#include "core/labels.h"
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/divergence_math.cuh"

extern __shared__ uint4 div_held[]; /* [2, packs, threads] */

/* Each of `v` becomes what Op makes of that of the row. */
struct div_space {
  team_space<3> team;
  cluster_space<3> cluster;
};
template <class Op>
__device__ inline void div_all(const team &t, const cluster &cl, div_space &space, int &turn, float (&v)[3]) {
  team_all<Op>(t, space.team, turn, v);
  cluster_all<Op>(cl, space.cluster, turn, v);
  turn ^= 1;
}

template <int N> __device__ static inline void div_fill(float (&v)[N], float with) {
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = with;
}

/* A thread's elements of a row's two sides: N of every `step` from `first` on. */
template <class T, int N, bool HELD, bool CAP> struct div_line {
  const T *x, *t;
  uint4 *held;
  int64_t cols, known, first, step; /* known: the target's columns */
  int packs;
  float missing;
  const div_map<CAP> x_map, t_map;

  __device__ div_line(const div_problem &p, const div_walk &walk, const team &tm, const cluster &cl, int64_t r)
      : x(row_of<T>(p.space, p.input, r)), t(row_of<T>(p.space, p.target, r)), held(div_held + threadIdx.x),
        cols(p.cols), known(p.target_cols), first((int64_t)(cl.rank * tm.threads + tm.rank) * N),
        step((int64_t)cl.size * tm.threads * N), packs(walk.packs), missing(div_missing(p)), x_map(p.input_map),
        t_map(p.target_map) {
    if constexpr (HELD) {
      for (int k = 0; k < packs && first + k * step < cols; ++k) {
        const int64_t c = first + k * step;
        __pipeline_memcpy_async(held + k * blockDim.x, x + c, 16);
        if (c < known) __pipeline_memcpy_async(held + (packs + k) * blockDim.x, t + c, 16);
      }
      __pipeline_commit();
      __pipeline_wait_prior(0);
    }
  }
  /* f(c, a, b) of each N elements from column c on, of the input and of the target as the row has them. */
  template <class F> __device__ inline void each(F f) const {
    int k = 0;
    for (int64_t c = first; c < cols; c += step, ++k) {
      float a[N], b[N];
      if constexpr (HELD) {
        unpack(pack_of<T>(held[k * blockDim.x]), a);
        if (c < known) unpack(pack_of<T>(held[(packs + k) * blockDim.x]), b);
      } else {
        unpack(load_pack<T, N>(x + c), a);
        if (c < known) unpack(load_pack<T, N>(t + c), b);
      }
      if (c >= known) div_fill(b, missing);
      f(c, a, b);
    }
  }
  /* Elements as the divergence takes them. */
  __device__ inline void map(int64_t c, float (&a)[N], float (&b)[N]) const {
    if constexpr (CAP) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        a[j] = x_map.z(a[j]);
        if (c < known) b[j] = t_map.z(b[j]);
      }
    }
  }
  /* Sums over the thread's elements: add(a, b, part) of one of each. f32 within DIV_GROUP times N of them, f64 beyond.
   * */
  template <class F> __device__ inline void sum(float (&sums)[3], F add) const {
    double all[3] = {0, 0, 0};
    float part[3] = {0, 0, 0};
    int k = 0;
    each([&](int64_t c, float(&a)[N], float(&b)[N]) {
      float of[3] = {0, 0, 0};
      map(c, a, b);
#pragma unroll
      for (int j = 0; j < N; ++j) add(a[j], b[j], of);
#pragma unroll
      for (int i = 0; i < 3; ++i) part[i] += of[i];
      if (++k % DIV_GROUP) return;
#pragma unroll
      for (int i = 0; i < 3; ++i) all[i] += (double)part[i], part[i] = 0;
    });
#pragma unroll
    for (int i = 0; i < 3; ++i) sums[i] = (float)(all[i] + (double)part[i]);
  }
};

/* The log-sum-exp of a side whose largest logit and sum of exponentials are known. */
__device__ static inline float div_finish(div_side &s, float sum) {
  if (s.is != TIGON_DISTRIBUTION_LOGITS) return 0;
  if (fabsf(s.reference) < INFINITY) s.log_sum = logf(sum);
  return fabsf(s.reference) < INFINITY ? (float)((double)s.reference + log((double)sum)) : s.reference;
}

template <class T, int N, bool HELD, bool CAP>
__device__ inline void div_rows(const div_problem &p, const div_walk &walk) {
  __shared__ div_space space;
  const team tm = team_of(walk.team);
  const cluster cl = cluster_of_block();
  const int64_t r = walk.first_row + (int64_t)(blockIdx.x / cl.size) * tm.count + tm.index;
  if (r >= p.space.rows) return;
  const bool lead = tm.rank == 0 && cl.rank == 0;
  T *const out = p.dinput.data ? row_of<T>(p.space, p.dinput, r) : NULL;
  if (!tigon_divergence_counts(&p, r)) {
    const int64_t first = (int64_t)(cl.rank * tm.threads + tm.rank) * N, step = (int64_t)cl.size * tm.threads * N;
    for (int64_t c = first; out && c < p.cols; c += step) store_pack<T, N>(out + c, zero_pack<T, N>());
    if (!lead) return;
    div_put(p, r, false, 0, 0, 0);
    for (int i = 0; p.stats && i < 3; ++i) p.stats[3 * r + i] = 0;
    return;
  }
  const div_line<T, N, HELD, CAP> line(p, walk, tm, cl, r);
  const div_mixing &m = walk.mixing;
  const float x_scale_of = div_scale(p.input_map);
  div_side q = div_side_of(p, p.input_is, x_scale_of), t = div_side_of(p, p.target_is, div_scale(p.target_map));
  const bool cosine = p.kind == TIGON_DIVERGENCE_COSINE, q_sums = q.is == TIGON_DISTRIBUTION_LOGITS,
             t_sums = t.is == TIGON_DISTRIBUTION_LOGITS;
  const bool hard = p.hard != 0;
  const int64_t of_class = tigon_divergence_class(&p, r);
  const float x_class = of_class >= 0 ? to_f32(line.x[of_class]) : 0; /* before dinput may be written over it */
  div_side h = div_side{TIGON_DISTRIBUTION_LOGITS, x_scale_of, 0, 0};
  float stats[3] = {0, 0, 0}, v[3], hard_lse = 0;
  double loss;
  int turn = 0;
  if (hard && cosine) {
    v[0] = v[1] = v[2] = -INFINITY;
    line.each([&](int64_t, float(&a)[N], float(&)[N]) {
#pragma unroll
      for (int j = 0; j < N; ++j) v[0] = op_max::of(a[j], v[0]);
    });
    div_all<op_max>(tm, cl, space, turn, v);
    h.reference = line.x_map.z(v[0]) * h.scale;
    line.sum(v, [&](float a, float, float(&of)[3]) { of[0] += expf(fmaf(a, h.scale, -h.reference)); });
    div_all<op_sum>(tm, cl, space, turn, v);
    hard_lse = div_finish(h, v[0]);
  }
  if (cosine || q_sums || t_sums) {
    v[0] = v[1] = cosine ? 0 : -INFINITY, v[2] = 0;
    line.each([&](int64_t, float(&a)[N], float(&b)[N]) {
#pragma unroll
      for (int j = 0; j < N; ++j) {
        v[0] = op_max::of(cosine ? fabsf(a[j]) : a[j], v[0]);
        v[1] = op_max::of(cosine ? fabsf(b[j]) : b[j], v[1]);
      }
    });
    div_all<op_max>(tm, cl, space, turn, v);
    v[0] = line.x_map.z(v[0]), v[1] = line.t_map.z(v[1]);
  }
  if (cosine) {
    const float x_scale = div_scale_down(v[0]), t_scale = div_scale_down(v[1]);
    line.sum(v, [&](float a, float b, float(&of)[3]) {
      const float x = a * x_scale, y = b * t_scale;
      of[0] = fmaf(x, x, of[0]), of[1] = fmaf(y, y, of[1]), of[2] = fmaf(x, y, of[2]);
    });
    div_all<op_sum>(tm, cl, space, turn, v);
    const double x_norm = sqrt((double)v[0]), t_norm = sqrt((double)v[1]);
    const double c = x_norm == 0 || t_norm == 0 ? 0 : (double)v[2] / x_norm / t_norm;
    stats[0] = (float)(x_norm / (double)x_scale), stats[1] = (float)(t_norm / (double)t_scale), stats[2] = (float)c;
    loss = 1 - c;
  } else {
    if (q_sums || t_sums) {
      if (q_sums) q.reference = v[0] * q.scale;
      if (t_sums) t.reference = v[1] * t.scale;
      h.reference = v[0] * h.scale;
      line.sum(v, [&](float a, float b, float(&of)[3]) {
        if (q_sums) of[0] += expf(fmaf(a, q.scale, -q.reference));
        if (t_sums) of[1] += expf(fmaf(b, t.scale, -t.reference));
        if (hard) of[2] += expf(fmaf(a, h.scale, -h.reference));
      });
      div_all<op_sum>(tm, cl, space, turn, v);
      stats[0] = div_finish(q, v[0]), stats[1] = div_finish(t, v[1]);
      if (hard) hard_lse = div_finish(h, v[2]);
    }
    line.sum(v, [&](float a, float b, float(&of)[3]) {
      div_add(p.kind, m, div_chance_of(q, a), div_chance_of(t, b), of[0], of[1]);
    });
    div_all<op_sum>(tm, cl, space, turn, v);
    loss = (double)v[0], stats[2] = v[1];
  }
  if (out) {
    const div_gradient g = div_gradient_of(p, q, t, h, of_class, stats, div_factor(p, walk, r));
    line.each([&](int64_t c, float(&a)[N], float(&b)[N]) {
      float slope[N];
#pragma unroll
      for (int j = 0; j < N; ++j) slope[j] = line.x_map.slope(a[j]);
      line.map(c, a, b);
#pragma unroll
      for (int j = 0; j < N; ++j) a[j] = div_dinput(p, m, g, a[j], b[j], c + j) * slope[j];
      store_pack<T, N>(out + c, packed<T, N>(a));
    });
  }
  if (lead) {
    div_put(p, r, true, loss, hard ? (double)hard_lse - tigon_logit(&p.input_map, (double)x_class) : 0, hard_lse);
    for (int i = 0; p.stats && i < 3; ++i) p.stats[3 * r + i] = stats[i];
  }
  cluster_end(cl);
}

/* A team has DIV_TURNS packs a thread of a row. KIND: that of all calls, whose sides are logits of as many columns, and no labels' share is in it; else -1.
 */
template <class T, int N, bool CAP, int KIND = -1>
__device__ inline void div_bwd(const div_problem &p, const div_walk &walk) {
  const team tm = team_of(walk.team);
  const int64_t task = (int64_t)blockIdx.x * tm.count + tm.index;
  const int64_t chunk = task % walk.chunks, r = walk.first_row + task / walk.chunks;
  if (r >= p.space.rows) return;
  const int64_t width = (int64_t)DIV_TURNS * tm.threads * N, step = (int64_t)tm.threads * N;
  const int64_t begin = chunk * width + (int64_t)tm.rank * N;
  const int64_t end = chunk * width + width < p.cols ? chunk * width + width : p.cols;
  const T *x = row_of<T>(p.space, p.input, r), *t = row_of<T>(p.space, p.target, r);
  T *out = row_of<T>(p.space, p.dinput, r);
  if (!tigon_divergence_counts(&p, r)) {
    for (int64_t c = begin; c < end; c += step) store_pack<T, N>(out + c, zero_pack<T, N>());
    return;
  }
  const float stats[3] = {p.stats[3 * r], p.stats[3 * r + 1], p.stats[3 * r + 2]};
  const div_mixing &m = walk.mixing;
  const float x_scale = div_scale(p.input_map);
  const div_map<CAP> x_map(p.input_map), t_map(p.target_map);
  div_side q = div_side_of(p, p.input_is, x_scale), s = div_side_of(p, p.target_is, div_scale(p.target_map));
  if (KIND >= 0) q.is = s.is = TIGON_DISTRIBUTION_LOGITS; /* which the compiler does not know */
  if (q.is == TIGON_DISTRIBUTION_LOGITS) q.reference = stats[0];
  if (s.is == TIGON_DISTRIBUTION_LOGITS) s.reference = stats[1];
  const div_side h = {TIGON_DISTRIBUTION_LOGITS, x_scale, p.hard != 0 ? p.hard_lse[r] : 0, 0};
  const div_gradient g = div_gradient_of(p, q, s, h, tigon_divergence_class(&p, r), stats, div_factor(p, walk, r));
  const float missing = div_missing(p);
#pragma unroll 2
  for (int64_t c = begin; c < end; c += step) {
    float a[N], b[N];
    unpack(load_pack<T, N>(x + c), a);
    if (KIND >= 0 || c < p.target_cols)
      unpack(load_pack<T, N>(t + c), b);
    else
      div_fill(b, missing);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      if constexpr (KIND >= 0) {
        const tigon_divergence_kind kind = (tigon_divergence_kind)KIND;
        const div_chance chance = div_chance_of(q, a[j]), known = div_chance_of(s, b[j]);
        a[j] = div_of_logits(kind, chance.of, div_part(kind, m, chance, known), g.off) * g.factor;
        continue;
      }
      const float x = x_map.z(a[j]), y = c < p.target_cols ? t_map.z(b[j]) : b[j];
      a[j] = div_dinput(p, m, g, x, y, c + j) * x_map.slope(a[j]);
    }
    store_pack<T, N>(out + c, packed<T, N>(a));
  }
}

#define DIV_KERNEL(name, ...)                               \
  KERNEL_BY_DTYPE(divergence_##name, (DIV_MOST_THREADS, 2), \
                  (const __grid_constant__ div_problem p, const __grid_constant__ div_walk walk), __VA_ARGS__)

DIV_KERNEL(held, div_rows<T, pack<T>::N, true, false>(p, walk))
DIV_KERNEL(walked, div_rows<T, pack<T>::N, false, false>(p, walk))
DIV_KERNEL(any, div_rows<T, 1, false, false>(p, walk))
DIV_KERNEL(bwd, div_bwd<T, pack<T>::N, false>(p, walk))
DIV_KERNEL(bwd_any, div_bwd<T, 1, false>(p, walk))
DIV_KERNEL(bwd_kl, div_bwd<T, pack<T>::N, false, TIGON_DIVERGENCE_KL>(p, walk))
DIV_KERNEL(bwd_reverse_kl, div_bwd<T, pack<T>::N, false, TIGON_DIVERGENCE_REVERSE_KL>(p, walk))
DIV_KERNEL(bwd_jsd, div_bwd<T, pack<T>::N, false, TIGON_DIVERGENCE_JSD>(p, walk))
DIV_KERNEL(bwd_tvd, div_bwd<T, pack<T>::N, false, TIGON_DIVERGENCE_TVD>(p, walk))
DIV_KERNEL(cap_walked, div_rows<T, pack<T>::N, false, true>(p, walk))
DIV_KERNEL(cap_any, div_rows<T, 1, false, true>(p, walk))
DIV_KERNEL(cap_bwd, div_bwd<T, pack<T>::N, true>(p, walk))
DIV_KERNEL(cap_bwd_any, div_bwd<T, 1, true>(p, walk))

/* ---- over all rows, by one block in one order ---- */

extern "C" __global__ void __launch_bounds__(DIV_TOTAL_THREADS)
    divergence_count(const __grid_constant__ div_problem p) {
  const int64_t rows = p.denominator ? 0 : p.space.rows;
  long long counted = 0;
#pragma unroll 4
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) counted += tigon_divergence_counts(&p, r);
  counted = block_total(counted);
  if (threadIdx.x == 0) *p.inverse = tigon_divergence_inverse(&p, counted);
}

extern "C" __global__ void __launch_bounds__(DIV_TOTAL_THREADS)
    divergence_loss(const __grid_constant__ div_problem p, const __grid_constant__ div_walk walk) {
  double loss = 0;
#pragma unroll 4
  for (int64_t r = threadIdx.x; r < p.space.rows; r += blockDim.x) loss += (double)p.token_loss[r];
  loss = block_total(loss);
  if (threadIdx.x == 0) *p.loss = (float)(loss * (double)(walk.inverse != 0 ? walk.inverse : *p.inverse));
}
