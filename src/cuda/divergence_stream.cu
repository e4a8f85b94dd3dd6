/* divergence of long rows whose sides are both logits: a loss, and with dinput its gradient, of one read of both.
 *
 * The blocks of a cluster share a row, and have some rows, of which the next ones come into shared memory while they work on this one. Each
 * row takes three steps, between which the warps of the cluster tell each other what they have:
 *   open    a warp's largest logits, and its sums of exponentials that begin from there
 *   weigh   each class's probabilities, what it adds to the loss, and what the gradient is made of, which stay in registers
 *   close   the gradient
 * A row is opened before the one before it is closed, so that what is told has its time to come.
 * Logarithms are to base 2, as the hardware's are; what is added up of them is brought to e at the end. */
#include "core/labels.h"
#include "cuda/kernel/divergence_math.cuh"
#include "cuda/kernel/divergence_mail.cuh"

extern __shared__ uint4 stream_held[]; /* [buffers, 2, slice] */

/* `v` times a probability `of`, whose logarithm is log_of: 0 of no probability, and Inf of any where v is. */
__device__ static inline void stream_settle(float &v, float log_of, float &of) {
  if (fabsf(v) < INFINITY) return;
  if (log_of == -INFINITY)
    v = 0;
  else
    of = fmaxf(of, FLT_MIN);
}

template <class T, tigon_divergence_kind KIND> struct stream_rows {
  enum { N = pack<T>::N, MOST = DIV_STREAM_ELEMENTS / N };
  enum : bool { KL = KIND == TIGON_DIVERGENCE_KL, REVERSE = KIND == TIGON_DIVERGENCE_REVERSE_KL };
  enum : bool { JSD = KIND == TIGON_DIVERGENCE_JSD, TVD = KIND == TIGON_DIVERGENCE_TVD };
  static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
  /* What a sum of losses, and what the gradient is made of, are multiplied by. */
  static constexpr float LOSS_UNIT = TVD ? 0.5f : LN_2, PART_UNIT = KL ? 1 : LOSS_UNIT;
  const div_problem &p;
  const div_walk &walk;
  const cluster cl;
  const int begin, packs; /* the block's part of a row */

  __device__ stream_rows(const div_problem &p, const div_walk &walk)
      : p(p), walk(walk), cl(cluster_of_block()), begin(cl.rank * walk.slice),
        packs(min(walk.slice, max((int)p.cols / N - begin, 0))) {}

  /* The block's part of the input, and of the target behind it. */
  __device__ inline uint4 *held(int buffer) const { return stream_held + buffer * 2 * walk.slice; }

  /* By one thread, when all have read what the buffer held; returns the row that is fetched after r. */
  __device__ inline int64_t fetch(int64_t r, int64_t end, int buffer, uint64_t &arrived) const {
#if __CUDA_ARCH__ >= 900
    if (r >= end) return r;
    const int bytes = packs * 16;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&arrived)), "r"(2 * bytes)
                 : "memory");
    stream_copy(held(buffer), row_of<T>(p.space, p.input, r) + begin * N, bytes, arrived);
    stream_copy(held(buffer) + walk.slice, row_of<T>(p.space, p.target, r) + begin * N, bytes, arrived);
#endif
    return next(r + 1, end);
  }
  /* f(k, at) of the thread's packs; `at` of the block's. */
  template <class F> __device__ inline void each(F f) const {
#pragma unroll
    for (int k = 0; k < MOST; ++k) {
      const int at = k * DIV_STREAM_THREADS + (int)threadIdx.x;
      if (at >= packs) break;
      f(k, at);
    }
  }
  /* Elements of a pack of the input and of the target. */
  __device__ inline void get(const uint4 *row, int at, float (&a)[N], float (&b)[N]) const {
    unpack(pack_of<T>(row[at]), a);
    unpack(pack_of<T>(row[walk.slice + at]), b);
  }

  /* For a class with logits a and b: its probability of the input, its part of the gradient, and its terms of both sums. For jsd log_sum
   * has log(1 - beta) and log(beta), so probabilities are times that. */
  __device__ inline void weigh(const div_mixing &m, const div_side &q, const div_side &t, float a, float b, float &of,
                               float &part, float (&sums)[2]) const {
    const float lq = fmaf(a, q.scale, -q.reference) - q.log_sum, lp = fmaf(b, t.scale, -t.reference) - t.log_sum;
    float v = lp - lq;
    if constexpr (JSD) {
      constexpr float FAR = 256; /* what is farther apart is 0 beside the other; of two -Inf any number will do */
      v = fminf(fmaxf(v, -FAR), FAR);
      const float above = fmaxf(v, 0), less = stream_exp2(-fabsf(v)), most = stream_exp2(fmaxf(lq, lp)),
                  least = most * less;
      float near;
      asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(fmaf(less, m.rest, m.rest)));
      of = v < 0 ? most : least;
      part = above + near; /* log m - log q */
      sums[0] = fmaf(of, part, sums[0]);
      sums[1] = fmaf(v < 0 ? least : most, part - v + m.odds, sums[1]);
    } else {
      of = stream_exp2(lq), part = stream_exp2(lp);
      if constexpr (KL) {
        stream_settle(v, lp, part);
        sums[0] = fmaf(part, v, sums[0]);
        sums[1] += part;
      } else if constexpr (REVERSE) {
        stream_settle(v, lq, of);
        sums[0] = fmaf(of, v, sums[0]);
        part = v;
      } else {
        sums[0] += fabsf(of - part);
        part = div_sign(of - part);
        sums[1] = fmaf(of, part, sums[1]);
      }
    }
  }

  /* The first row from r on that counts. */
  __device__ inline int64_t next(int64_t r, int64_t end) const {
    while (r < end && !tigon_divergence_counts(&p, r)) ++r;
    return r;
  }
  __device__ inline void skip(int64_t r, int64_t end) const {
    for (; r < end; ++r) {
      if (p.dinput.data) {
        T *const out = row_of<T>(p.space, p.dinput, r) + begin * N;
        each([&](int, int at) { store_pack<T, N>(out + at * N, zero_pack<T, N>()); });
      }
      if (cl.rank != 0 || threadIdx.x != 0) continue;
      div_put(p, r, false, 0, 0, 0);
      for (int i = 0; p.stats && i < 3; ++i) p.stats[3 * r + i] = 0;
    }
  }

  __device__ inline void open(const uint4 *row, float q_scale, float t_scale, stream_mail &mail, int turn) const {
    stream_most<T> most_q, most_t;
    each([&](int, int at) { most_q.raise(row[at]), most_t.raise(row[walk.slice + at]); });
    float v[2] = {both_all<op_max>(most_q.largest() * q_scale, most_t.largest() * t_scale), 0}, sums[2] = {0, 0};
    /* With nothing but -Inf exponentials are 0, not NaN, so that other warps of the row can have the rest. */
    const float from = v[0] == -INFINITY ? 0 : v[0], from_q = of_half(from, 0), from_t = of_half(from, 1);
    each([&](int, int at) {
      float a[N], b[N], of[2] = {0, 0};
      get(row, at, a, b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        of[0] += stream_exp2(fmaf(a[j], q_scale, -from_q));
        of[1] += stream_exp2(fmaf(b[j], t_scale, -from_t));
      }
      sums[0] += of[0], sums[1] += of[1];
    });
    v[1] = both_all<op_sum>(sums[0], sums[1]);
    cluster_post<4>(cl, mail, turn, v, (int)threadIdx.x % HALF, 2 * stream_half());
  }

  __device__ inline void run() const {
    __shared__ stream_mail mail;
    __shared__ uint64_t arrived[DIV_STREAM_BUFFERS]; /* mbarriers */
    const int64_t begin_row = blockIdx.x / cl.size * walk.rows;
    const int64_t end = begin_row + walk.rows < p.space.rows ? begin_row + walk.rows : p.space.rows;
    if (threadIdx.x < DIV_STREAM_BUFFERS)
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&arrived[threadIdx.x])) : "memory");
    stream_clear(mail);
    cluster_mail_open(cl, mail);
    const bool fetches = threadIdx.x == 0 && packs > 0, lead = cl.rank == 0 && threadIdx.x == 0;
    int64_t coming = next(begin_row, end); /* used by one thread: the row that is fetched next */
    for (int i = 0; fetches && i < walk.buffers; ++i) coming = fetch(coming, end, i, arrived[i]);

    div_side q = div_side_of(p, TIGON_DISTRIBUTION_LOGITS, div_scale(p.input_map)),
             t = div_side_of(p, TIGON_DISTRIBUTION_LOGITS, div_scale(p.target_map));
    q.scale *= LOG2_E, t.scale *= LOG2_E;
    const div_mixing m = {walk.mixing.beta, walk.mixing.rest, walk.mixing.log_beta * LOG2_E,
                          walk.mixing.log_rest * LOG2_E, walk.mixing.odds * LOG2_E};
    const double per_part = JSD ? 1 / (double)m.rest : 1; /* what weigh() makes of the input is multiplied by it */
    float u[MOST * N], w[MOST * N], largest = 0, sum = 0;
    unsigned phases = 0;                 /* a bit a buffer */
    int turn = 0, buffer = 0, ahead = 0; /* the buffers of row r, and of the one after it */
    int64_t r = begin_row - 1, after;    /* at first there is no row yet, and then one that is open */
    for (bool is_open = false;;
         r = after, is_open = true, buffer = ahead, ahead = ahead + 1 == walk.buffers ? 0 : ahead + 1) {
      if (is_open) {
        cluster_await(mail, turn);
        stream_take(mail, turn++, largest, sum);
        const float log_sum = fabsf(largest) < INFINITY ? log2f(sum) : NAN;
        q.reference = of_half(largest, 0), q.log_sum = of_half(log_sum, 0) - (JSD ? m.log_rest : 0);
        t.reference = of_half(largest, 1), t.log_sum = of_half(log_sum, 1) - (JSD ? m.log_beta : 0);
        float sums[2] = {0, 0};
        each([&](int k, int at) {
          float a[N], b[N], of[2] = {0, 0};
          get(held(buffer), at, a, b);
#pragma unroll
          for (int j = 0; j < N; ++j) weigh(m, q, t, a[j], b[j], u[k * N + j], w[k * N + j], of);
          sums[0] += of[0], sums[1] += of[1];
        });
        /* NaN where a side has no probabilities */
        const float v[1] = {both_all<op_sum>(sums[0], sums[1]) + 0 * (q.log_sum + t.log_sum)};
        cluster_post<2>(cl, mail, turn++, v, (int)threadIdx.x % HALF, 2 * stream_half() + 1);
        if (walk.buffers == 1) { /* the next row needs it */
          cluster_await(mail, turn - 1);
          if (fetches) coming = fetch(coming, end, buffer, arrived[buffer]);
        }
      }
      after = next(r + 1, end);
      if (after < end) {
        if (packs > 0) await_phase(arrived[ahead], phases >> ahead & 1);
        phases ^= 1u << ahead;
        open(held(ahead), q.scale, t.scale, mail, turn);
      }
      if (is_open) {
        double factor = (double)p.soft * (double)tigon_logit_scale(&p.input_map) * (double)p.inverse_temperature;
        if (p.dinput.data) factor *= div_factor(p, walk, r) * (double)PART_UNIT;
        cluster_await(mail, turn - 1); /* and so all of the block's warps have read the buffer */
        if (fetches && walk.buffers > 1) coming = fetch(coming, end, buffer, arrived[buffer]);
        float terms[STREAM_EACH];
        stream_read(mail, turn - 1, 2 * stream_half() + 1, terms);
        const float total = stream_sum(terms), first = of_half(total, 0), second = of_half(total, 1);
        const float off = JSD || REVERSE ? -first : second, loss = JSD ? off - second : REVERSE ? off : first;
        if (p.dinput.data) {
          T *const out = row_of<T>(p.space, p.dinput, r) + begin * N;
          const float by = (float)(KL || TVD ? factor : -factor), by_off = (float)(factor * per_part * (double)off);
          each([&](int k, int at) {
            float a[N];
#pragma unroll
            for (int j = 0; j < N; ++j) {
              const float of = u[k * N + j], part = w[k * N + j];
              a[j] = KL ? fmaf(of, by_off, -(part * by)) : of * fmaf(part, by, -by_off);
              if (REVERSE && of == 0) a[j] = 0; /* by_off may be Inf */
            }
            store_pack<T, N>(out + at * N, packed<T, N>(a));
          });
        }
        if (lead) div_put(p, r, true, (double)(loss * LOSS_UNIT), 0, 0);
        if (lead && p.stats) p.stats[3 * r + 2] = off * PART_UNIT;
        if (cl.rank == 0 && p.stats && ((int)threadIdx.x == 0 || (int)threadIdx.x == HALF))
          p.stats[3 * r + stream_half()] = stream_lse(largest, sum);
      }
      skip(r + 1, after);
      if (after >= end) break;
    }
  }
};

#define STREAM_KERNEL(name, KIND)                                                                 \
  KERNEL_BY_DTYPE(divergence_stream_##name, (DIV_STREAM_THREADS, 1),                              \
                  (const __grid_constant__ div_problem p, const __grid_constant__ div_walk walk), \
                  stream_rows<T, KIND>(p, walk).run())

STREAM_KERNEL(reverse_kl, TIGON_DIVERGENCE_REVERSE_KL)
STREAM_KERNEL(jsd, TIGON_DIVERGENCE_JSD)
STREAM_KERNEL(tvd, TIGON_DIVERGENCE_TVD)
