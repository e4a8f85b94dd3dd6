/* divergence of long rows whose sides are both logits: a loss, and with dinput its gradient, of one read of both.
 *
 * The blocks of a cluster share a row, and have some rows. A thread's packs of the next one come into shared memory while it works on this one.
 * The exponentials of both sides, and later what the gradient is made of, stay in its registers, so that each is made once.
 * Warps take their exponentials from their own largest logits; what these add up to is brought to the row's.
 * Logarithms are to base 2, as the hardware's are; what is added up of them is brought to e at the end. */
#include <cuda_pipeline.h>

#include "core/labels.h"
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/divergence_math.cuh"

extern __shared__ uint4 stream_held[]; /* [buffers, 2, packs, threads] */

enum { STREAM_WARPS = DIV_STREAM_THREADS / WARP };
typedef cluster_mail<4, STREAM_WARPS> stream_mail;

/* Results that are no normal number are 0. */
__device__ static inline float stream_exp2(float x) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
  return e;
}
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

/* Of value `i` of all the cluster's warps a lane has some; `none` where it has none. */
enum { STREAM_EACH = stream_mail::MOST_BLOCKS * STREAM_WARPS / WARP };
__device__ static inline void stream_read(const cluster &cl, const stream_mail &mail, int turn, int i, float none,
                                          float (&v)[STREAM_EACH]) {
  const float *of = mail.of[turn % mail.BOXES][i][0];
#pragma unroll
  for (int e = 0; e < STREAM_EACH; ++e) {
    const int at = e * WARP + (int)threadIdx.x % WARP;
    v[e] = at < cl.size * STREAM_WARPS ? of[at] : none;
  }
}
__device__ static inline float stream_sum(const float (&v)[STREAM_EACH]) {
  float sum = v[0];
#pragma unroll
  for (int e = 1; e < STREAM_EACH; ++e) sum += v[e];
  return warp_all<op_sum>(sum);
}

/* Each warp's largest number, value `i`, and sum of exponentials that begin from there, the next value, become those of the row. */
__device__ static inline void stream_take(const cluster &cl, const stream_mail &mail, int turn, int i, float &largest,
                                          float &sum) {
  float own[STREAM_EACH], sums[STREAM_EACH];
  stream_read(cl, mail, turn, i, -INFINITY, own);
  stream_read(cl, mail, turn, i + 1, 0, sums);
  largest = own[0];
#pragma unroll
  for (int e = 1; e < STREAM_EACH; ++e) largest = op_max::of(own[e], largest);
  largest = warp_all<op_max>(largest);
#pragma unroll
  for (int e = 0; e < STREAM_EACH; ++e) sums[e] *= own[e] == largest ? 1 : stream_exp2(own[e] - largest);
  sum = stream_sum(sums);
}

/* Sets what a side's log-probabilities begin from; returns what the warp's exponentials, from `own` on, are multiplied by. */
__device__ static inline float stream_side(div_side &s, float own, float largest, float sum) {
  const bool finite = fabsf(largest) < INFINITY;
  s.reference = largest;
  s.log_sum = finite ? log2f(sum) : 0;
  return finite ? stream_exp2(own - largest) / sum : NAN;
}
__device__ static inline float stream_lse(float largest, float sum) {
  return fabsf(largest) < INFINITY ? (float)(((double)largest + log2((double)sum)) * 0.6931471805599453) : largest;
}

/* op_max in one instruction. */
__device__ static inline float stream_max(float a, float b) {
  float v;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(a), "f"(b));
  return v;
}

/* div_to_mixture() to base 2. */
__device__ static inline div_logs stream_to_mixture(const div_mixing &m, float v) {
  float near;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(1 + stream_exp2(-fabsf(v))));
  return div_logs{-(m.log_rest + (fmaxf(v, 0) + near)), -(m.log_beta + (fmaxf(-v, 0) + near))};
}

/* A probability e * by; as div_chance_of() has it. */
__device__ static inline div_chance stream_chance(const div_side &s, float x, float e, float by) {
  const float log = fmaf(x, s.scale, -s.reference) - s.log_sum, of = e * by;
  return div_chance{log, of < FLT_MIN ? (log == -INFINITY ? 0.0f : FLT_MIN) : of};
}

template <class T, tigon_divergence_kind KIND> struct stream_rows {
  enum { N = pack<T>::N, MOST = DIV_STREAM_ELEMENTS / N };
  /* What a sum of losses, and what the gradient is made of, are multiplied by. */
  static constexpr float LOSS_UNIT = KIND == TIGON_DIVERGENCE_TVD ? 1 : LN_2;
  static constexpr float PART_UNIT = KIND == TIGON_DIVERGENCE_KL ? 1 : LOSS_UNIT;
  const div_problem &p;
  const div_walk &walk;
  const cluster cl;
  const int first, step, cols; /* short: DIV_STREAM_ELEMENTS of each thread of a cluster */

  __device__ stream_rows(const div_problem &p, const div_walk &walk)
      : p(p), walk(walk), cl(cluster_of_block()), first((int)(cl.rank * blockDim.x + threadIdx.x) * N),
        step((int)(cl.size * blockDim.x) * N), cols((int)p.cols) {}

  /* The thread's first pack of the input; its others are as many threads further each, and those of the target behind them. */
  __device__ inline uint4 *held(int buffer) const {
    return stream_held + buffer * 2 * walk.packs * DIV_STREAM_THREADS + threadIdx.x;
  }
  __device__ inline void fetch(int64_t r, int64_t end, int buffer) const {
    if (r < end && tigon_divergence_counts(&p, r)) {
      const T *x = row_of<T>(p.space, p.input, r), *t = row_of<T>(p.space, p.target, r);
      uint4 *to = held(buffer);
      for (int k = 0; k < walk.packs && first + k * step < cols; ++k) {
        __pipeline_memcpy_async(to + k * DIV_STREAM_THREADS, x + first + k * step, 16);
        __pipeline_memcpy_async(to + (walk.packs + k) * DIV_STREAM_THREADS, t + first + k * step, 16);
      }
    }
    __pipeline_commit();
  }
  /* f(k, a, b) of the thread's packs of the input and of the target. */
  template <class F> __device__ inline void each(int buffer, F f) const {
    const uint4 *x = held(buffer), *t = x + walk.packs * DIV_STREAM_THREADS;
#pragma unroll
    for (int k = 0; k < MOST; ++k) {
      if (k >= walk.packs || first + k * step >= cols) break;
      float a[N], b[N];
      unpack(pack_of<T>(x[k * DIV_STREAM_THREADS]), a);
      unpack(pack_of<T>(t[k * DIV_STREAM_THREADS]), b);
      f(k, a, b);
    }
  }

  __device__ inline void skip(int64_t r, T *out) const {
    for (int c = first; out && c < cols; c += step) store_pack<T, N>(out + c, zero_pack<T, N>());
    if (cl.rank != 0 || threadIdx.x != 0) return;
    div_put(p, r, false, 0, 0, 0);
    for (int i = 0; p.stats && i < 3; ++i) p.stats[3 * r + i] = 0;
  }

  __device__ inline void run() const {
    __shared__ stream_mail mail;
    const bool two = walk.buffers == 2;
    int64_t r = blockIdx.x / cl.size * walk.rows;
    const int64_t end = r + walk.rows < p.space.rows ? r + walk.rows : p.space.rows;
    int turn = 0;
    cluster_mail_open(cl, mail);
    fetch(r, end, 0);
    for (int buffer = 0; r < end; ++r, buffer ^= two) {
      T *const out = p.dinput.data ? row_of<T>(p.space, p.dinput, r) : NULL;
      if (two) fetch(r + 1, end, buffer ^ 1);
      if (!tigon_divergence_counts(&p, r)) {
        skip(r, out);
        if (!two) fetch(r + 1, end, 0);
        continue;
      }
      if (two)
        __pipeline_wait_prior(1);
      else
        __pipeline_wait_prior(0);
      div_side q = div_side_of(p, TIGON_DISTRIBUTION_LOGITS, div_scale(p.input_map)),
               t = div_side_of(p, TIGON_DISTRIBUTION_LOGITS, div_scale(p.target_map));
      q.scale *= LOG2_E, t.scale *= LOG2_E;
      float u[MOST * N], w[MOST * N], v[4] = {-INFINITY, 0, -INFINITY, 0};
      each(buffer, [&](int, float(&a)[N], float(&b)[N]) {
#pragma unroll
        for (int j = 0; j < N; ++j) v[0] = stream_max(a[j], v[0]), v[2] = stream_max(b[j], v[2]);
      });
      v[0] = warp_all<op_max>(v[0]) * q.scale, v[2] = warp_all<op_max>(v[2]) * t.scale;
      /* With nothing but -Inf exponentials are 0, not NaN, so that other warps of the row can have the rest. */
      const float own_q = v[0], own_t = v[2], from_q = own_q == -INFINITY ? 0 : own_q,
                  from_t = own_t == -INFINITY ? 0 : own_t;
      each(buffer, [&](int k, float(&a)[N], float(&b)[N]) {
        float of[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < N; ++j) {
          of[0] += u[k * N + j] = stream_exp2(fmaf(a[j], q.scale, -from_q));
          of[1] += w[k * N + j] = stream_exp2(fmaf(b[j], t.scale, -from_t));
        }
        v[1] += of[0], v[3] += of[1];
      });
      v[1] = warp_all<op_sum>(v[1]), v[3] = warp_all<op_sum>(v[3]);
      cluster_post(cl, mail, turn, v);
      cluster_await(mail, turn);
      stream_take(cl, mail, turn, 0, v[0], v[1]);
      stream_take(cl, mail, turn++, 2, v[2], v[3]);
      const float by_q = stream_side(q, own_q, v[0], v[1]), by_t = stream_side(t, own_t, v[2], v[3]);
      const bool lead = cl.rank == 0 && threadIdx.x == 0;
      if (lead && p.stats) p.stats[3 * r] = stream_lse(v[0], v[1]), p.stats[3 * r + 1] = stream_lse(v[2], v[3]);
      v[0] = v[1] = v[2] = v[3] = 0;
      const div_mixing m = {walk.mixing.beta, walk.mixing.rest, walk.mixing.log_beta * LOG2_E,
                            walk.mixing.log_rest * LOG2_E, walk.mixing.odds * LOG2_E};
      const float apart = m.odds + q.log_sum - t.log_sum;
      each(buffer, [&](int k, float(&a)[N], float(&b)[N]) {
        float of[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < N; ++j) {
          float &e = u[k * N + j], &f = w[k * N + j];
          if constexpr (KIND == TIGON_DIVERGENCE_JSD) { /* which is finite of every probability but 0 */
            const float lq = fmaf(a[j], q.scale, -q.reference), lp = fmaf(b[j], t.scale, -t.reference);
            const div_logs to = stream_to_mixture(m, lp - lq + apart);
            e *= by_q;
            div_add_mixed(m, to, e, f * by_t, of[0], of[1]);
            f = m.rest * to.q;
            continue;
          }
          const div_chance chance = stream_chance(q, a[j], e, by_q), known = stream_chance(t, b[j], f, by_t);
          div_add(KIND, m, chance, known, of[0], of[1]);
          e = chance.of, f = div_part(KIND, m, chance, known);
        }
        v[0] += of[0], v[1] += of[1];
      });
      if (!two) fetch(r + 1, end, 0);
      v[0] = warp_all<op_sum>(v[0]), v[1] = warp_all<op_sum>(v[1]);
      cluster_post(cl, mail, turn, v);
      cluster_await(mail, turn);
      float terms[STREAM_EACH];
      stream_read(cl, mail, turn, 0, 0, terms);
      const float loss = stream_sum(terms) * LOSS_UNIT;
      stream_read(cl, mail, turn++, 1, 0, terms);
      const float off = stream_sum(terms);
      if (out) {
        const double scale = (double)tigon_logit_scale(&p.input_map) * (double)p.inverse_temperature;
        const float factor = (float)(div_factor(p, walk, r) * (double)p.soft * scale * (double)PART_UNIT);
#pragma unroll
        for (int k = 0; k < MOST; ++k) {
          if (k >= walk.packs || first + k * step >= cols) break;
          float a[N];
#pragma unroll
          for (int j = 0; j < N; ++j) a[j] = div_of_logits(KIND, u[k * N + j], w[k * N + j], off) * factor;
          store_pack<T, N>(out + first + k * step, packed<T, N>(a));
        }
      }
      if (lead) div_put(p, r, true, (double)loss, 0, 0);
      if (lead && p.stats) p.stats[3 * r + 2] = off * PART_UNIT;
    }
  }
};

#define STREAM_KERNEL(name, KIND)                                                                 \
  KERNEL_BY_DTYPE(divergence_stream_##name, (DIV_STREAM_THREADS, 1),                              \
                  (const __grid_constant__ div_problem p, const __grid_constant__ div_walk walk), \
                  stream_rows<T, KIND>(p, walk).run())

STREAM_KERNEL(kl, TIGON_DIVERGENCE_KL)
STREAM_KERNEL(reverse_kl, TIGON_DIVERGENCE_REVERSE_KL)
STREAM_KERNEL(jsd, TIGON_DIVERGENCE_JSD)
STREAM_KERNEL(tvd, TIGON_DIVERGENCE_TVD)
