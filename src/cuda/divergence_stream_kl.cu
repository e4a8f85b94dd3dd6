/* kl of long rows whose sides are both logits: a loss, and with dinput its gradient, of one read of both.
 *
 * The blocks of a cluster share a row, and have some rows, one after the other. Of a block's warps one brings rows into shared memory, one adds up,
 * and the others take two steps:
 *   open    a warp's largest logits, and its sums of exponentials that begin from there
 *   close   the gradient, and what the warp adds to the loss
 * The sum of all p in the gradient is 1. So between these steps only the sums of exponentials go through the cluster. A row is opened before the
 * one before it is closed, which gives them the time for that. Logarithms are to base 2, as the hardware's are. */
#include "core/labels.h"
#include "cuda/kernel/divergence_math.cuh"
#include "cuda/kernel/divergence_mail.cuh"

#if __CUDA_ARCH__ >= 900
extern __shared__ uint4 kl_held[]; /* [buffers, 2, slice] */

enum {
  BLOCKS = stream_mail::MOST_BLOCKS,
  FETCHER = DIV_KL_WARPS,
  ADDER,
  BOXES = 2,
  CHAINS = 2 /* sums that do not wait for each other */
};
static_assert((ADDER + 1) * WARP == DIV_KL_THREADS, "as it is launched");

__device__ static inline void init(uint64_t &barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}
__device__ static inline void arrive(uint64_t &barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
__device__ static inline void arrive_expect(uint64_t &barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}

/* What is told of a row's sides: the largest logit, and the sum of exponentials from there on. The loss is that of the row two before, and the
 * second side's is 0. */
enum { LARGEST, SUM, LOSS, TOLD };
/* What closes a row: exponents begin at `from`; by `to` exponentials become the gradient, and by `of_p` probabilities. */
struct kl_row {
  float from[2], to[2], of_p;
};

struct kl_space {
  uint64_t arrived[DIV_STREAM_BUFFERS], used[DIV_STREAM_BUFFERS]; /* mbarriers: of buffers */
  uint64_t opened[BOXES], told[BOXES], known[BOXES];              /* the same: what warps, and blocks, have; the row */
  float of_warps[BOXES][TOLD][2][DIV_KL_WARPS], of_blocks[BOXES][TOLD][2][BLOCKS];
  kl_row rows[BOXES];
};

/* Every other turn's box, and the phase of its barrier. */
__device__ static inline int box_of(int turn) { return turn % BOXES; }
__device__ static inline uint32_t phase_of(int turn) { return turn / BOXES & 1; }

template <class T> struct kl_rows {
  enum { N = pack<T>::N, STEP = DIV_KL_WARPS * WARP };
  enum { MOST = (DIV_STREAM_ELEMENTS * DIV_STREAM_THREADS / N + STEP - 1) / STEP /* packs of a thread */ };
  static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
  const div_problem &p;
  const div_walk &walk;
  kl_space &space;
  const cluster cl;
  const int begin, packs; /* the block's part of a row */
  const float q_scale, t_scale;
  const int64_t begin_row, end_row;

  __device__ kl_rows(const div_problem &p, const div_walk &walk, kl_space &space)
      : p(p), walk(walk), space(space), cl(cluster_of_block()), begin(cl.rank * walk.slice),
        packs(min(walk.slice, max((int)p.cols / N - begin, 0))),
        q_scale(p.inverse_temperature * div_scale(p.input_map) * LOG2_E),
        t_scale(p.inverse_temperature * div_scale(p.target_map) * LOG2_E), begin_row(blockIdx.x / cl.size * walk.rows),
        end_row(begin_row + walk.rows < p.space.rows ? begin_row + walk.rows : p.space.rows) {}

  /* The block's part of the input, and of the target behind it. */
  __device__ inline uint4 *held(int buffer) const { return kl_held + buffer * 2 * walk.slice; }
  __device__ inline void next(int &buffer, uint32_t &phase) const {
    buffer = buffer + 1 == walk.buffers ? 0 : buffer + 1;
    phase ^= buffer == 0;
  }
  /* The first row from r on that counts. */
  __device__ inline int64_t next(int64_t r) const {
    while (r < end_row && !tigon_divergence_counts(&p, r)) ++r;
    return r;
  }

  /* f(at) of the thread's packs; `at` of the block's. */
  template <class F> __device__ inline void each(F f) const {
#pragma unroll
    for (int k = 0; k < MOST; ++k) {
      const int at = k * STEP + (int)threadIdx.x;
      if (at >= packs) break;
      f(at);
    }
  }
  /* Elements of a pack of the input and of the target. */
  __device__ inline void get(const uint4 *row, int at, float (&a)[N], float (&b)[N]) const {
    unpack(pack_of<T>(row[at]), a);
    unpack(pack_of<T>(row[walk.slice + at]), b);
  }

  /* ---- the warp that fetches ---- */

  __device__ inline void fetch() const {
    int buffer = 0;
    uint32_t phase = 1; /* at first all are used up */
    for (int64_t r = next(begin_row); packs > 0 && r < end_row; r = next(r + 1), next(buffer, phase)) {
      const int bytes = packs * 16;
      await_phase(space.used[buffer], phase);
      arrive_expect(space.arrived[buffer], 2 * bytes);
      stream_copy(held(buffer), row_of<T>(p.space, p.input, r) + begin * N, bytes, space.arrived[buffer]);
      stream_copy(held(buffer) + walk.slice, row_of<T>(p.space, p.target, r) + begin * N, bytes, space.arrived[buffer]);
    }
  }

  /* ---- the warps that open and close ---- */

  /* What the halves of the warp tell of a side. With nothing but -Inf exponentials are 0, not NaN, so that other warps can have the rest. */
  __device__ inline void open(const uint4 *row, float &largest, float &sum) const {
    stream_most<T> most_q, most_t;
    each([&](int at) { most_q.raise(row[at]), most_t.raise(row[walk.slice + at]); });
    largest = both_all<op_max>(most_q.largest() * q_scale, most_t.largest() * t_scale);
    const float from = largest == -INFINITY ? 0 : largest, from_q = of_half(from, 0), from_t = of_half(from, 1);
    float sums[2][CHAINS] = {};
    each([&](int at) {
      float a[N], b[N];
      get(row, at, a, b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        sums[0][j % CHAINS] += stream_exp2(fmaf(a[j], q_scale, -from_q));
        sums[1][j % CHAINS] += stream_exp2(fmaf(b[j], t_scale, -from_t));
      }
    });
    sum = both_all<op_sum>(sums[0][0] + sums[0][1], sums[1][0] + sums[1][1]);
  }

  /* Sum of exponentials of p times log p - log q of the thread's classes, but for the sums' logarithms. 0 log 0 is 0, and any p times Inf is Inf. */
  __device__ inline float weigh(const uint4 *row, const kl_row &of) const {
    float sum = 0;
    each([&](int at) {
      float a[N], b[N];
      get(row, at, a, b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float log_p = fmaf(b[j], t_scale, -of.from[1]), v = log_p - fmaf(a[j], q_scale, -of.from[0]);
        const float e = stream_exp2(log_p);
        sum = fabsf(v) < INFINITY ? fmaf(e, v, sum) : log_p == -INFINITY ? sum : fmaf(fmaxf(e, FLT_MIN), v, sum);
      }
    });
    return sum;
  }

  /* The gradient; returns what the thread adds to the loss. */
  __device__ inline float close(int64_t r, const uint4 *row, const kl_row &of) const {
    float sums[CHAINS] = {}, sum = 0;
    if (p.dinput.data) {
      T *const out = row_of<T>(p.space, p.dinput, r) + begin * N;
      each([&](int at) {
        float a[N], b[N];
        get(row, at, a, b);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float log_q = fmaf(a[j], q_scale, -of.from[0]), log_p = fmaf(b[j], t_scale, -of.from[1]);
          const float e = stream_exp2(log_p);
          sums[j % CHAINS] = fmaf(e, log_p - log_q, sums[j % CHAINS]);
          a[j] = fmaf(stream_exp2(log_q), of.to[0], -(e * of.to[1]));
        }
        store_pack<T, N>(out + at * N, packed<T, N>(a));
      });
    }
    sum = sums[0] + sums[1];
    if (!p.dinput.data || !(fabsf(sum) < INFINITY)) sum = weigh(row, of);
    return sum * of.of_p;
  }

  /* Rows [r, end), which do not count. */
  __device__ inline void skip(int64_t r, int64_t end) const {
    for (; r < end; ++r) {
      if (p.dinput.data) {
        T *const out = row_of<T>(p.space, p.dinput, r) + begin * N;
        each([&](int at) { store_pack<T, N>(out + at * N, zero_pack<T, N>()); });
      }
      if (cl.rank != 0 || threadIdx.x != 0) continue;
      div_put(p, r, false, 0, 0, 0);
      for (int i = 0; p.stats && i < 3; ++i) p.stats[3 * r + i] = 0;
    }
  }

  /* In turn i a warp opens row i, closes row i - 1, and tells of the loss of row i - 2. */
  __device__ inline void work() const {
    int64_t opens = begin_row - 1, closes = -1;
    int opened = 0, closed = 0;
    uint32_t phase = 0, ignored = 0;
    float lost = 0;
    for (int turn = 0, turns = 0; turn == 0 || turn < turns; ++turn) {
      const int64_t r = next(opens + 1);
      const float loss = warp_all<op_sum>(lost);
      const auto close_row = [&] {
        if (closes < 0) return;
        await_phase(space.known[box_of(turn - 1)], phase_of(turn - 1));
        lost = close(closes, held(closed), space.rows[box_of(turn - 1)]);
        __syncwarp();
        if (threadIdx.x % WARP == 0) arrive(space.used[closed]);
        next(closed, ignored);
      };
      float largest = 0, sum = 0;
      skip(opens + 1, r);
      opens = r;
      if (walk.buffers == 1) close_row(); /* row i needs it */
      if (opens < end_row) {
        if (packs > 0) await_phase(space.arrived[opened], phase);
        open(held(opened), largest, sum);
        next(opened, phase);
        turns = turn + 3;
      }
      if (turn < turns && threadIdx.x % HALF == 0) {
        float(*told)[2][DIV_KL_WARPS] = space.of_warps[box_of(turn)];
        const int half = stream_half(), warp = (int)threadIdx.x / WARP;
        told[LARGEST][half][warp] = largest, told[SUM][half][warp] = sum, told[LOSS][half][warp] = half ? 0 : loss;
        arrive(space.opened[box_of(turn)]);
      }
      if (walk.buffers > 1) close_row();
      closes = opens < end_row ? opens : -1;
      opens = min(opens, end_row - 1);
    }
  }

  /* ---- the warp that adds up ---- */

  /* What `count` warps or blocks have told, of the half's side: the largest logit, the sum of exponentials from there on, and the loss. */
  template <int MOST_OF>
  __device__ static inline void add(const float (&told)[TOLD][2][MOST_OF], int count, float (&v)[TOLD]) {
    enum { EACH = (MOST_OF + HALF - 1) / HALF };
    const int half = stream_half(), place = (int)threadIdx.x % HALF;
    float own[EACH];
    v[LARGEST] = -INFINITY, v[SUM] = 0, v[LOSS] = 0;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      own[e] = place + e * HALF < count ? told[LARGEST][half][place + e * HALF] : -INFINITY;
      v[LARGEST] = op_max::of(own[e], v[LARGEST]);
    }
    v[LARGEST] = half_all<op_max>(v[LARGEST]);
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      if (place + e * HALF >= count) continue;
      v[SUM] += told[SUM][half][place + e * HALF] * stream_exp2(own[e] - (v[LARGEST] == -INFINITY ? 0 : v[LARGEST]));
      v[LOSS] += told[LOSS][half][place + e * HALF];
    }
    v[SUM] = half_all<op_sum>(v[SUM]), v[LOSS] = half_all<op_sum>(v[LOSS]);
  }

  /* The block's v to all blocks, and v of all of them. A lane tells the block of its place in its half. */
  __device__ inline void tell(int turn, float (&v)[TOLD]) const {
    const int box = box_of(turn), half = stream_half(), place = (int)threadIdx.x % HALF;
    float(&told)[TOLD][2][BLOCKS] = space.of_blocks[box];
    if (cl.size == 1) return; /* st.async needs a cluster in the launch */
    if (threadIdx.x % WARP == 0) arrive_expect(space.told[box], cl.size * (int)sizeof v * 2);
    for (int i = 0; place < cl.size && i < TOLD; ++i)
      stream_send(&told[i][half][cl.rank], v[i], space.told[box], place);
    await_phase(space.told[box], phase_of(turn));
    add(told, cl.size, v);
  }

  __device__ inline void add_up() const {
    const int half = stream_half(), place = (int)threadIdx.x % HALF;
    int64_t opens = begin_row - 1, before[2] = {-1, -1}; /* rows that were opened in the two turns before */
    float ends[2] = {0, 0};                              /* what the sums add to their losses */
    const double scale = (double)p.soft * (double)tigon_logit_scale(&p.input_map) * (double)p.inverse_temperature;
    for (int turn = 0;; ++turn) {
      const int box = box_of(turn);
      float v[TOLD], end = 0;
      opens = next(opens + 1);
      const bool is_row = opens < end_row;
      if (!is_row && before[0] < 0 && before[1] < 0) break;
      const double factor = is_row && p.dinput.data ? scale * div_factor(p, walk, opens) : 0;
      await_phase(space.opened[box], phase_of(turn));
      add(space.of_warps[box], DIV_KL_WARPS, v);
      tell(turn, v);
      if (is_row) {
        const bool finite = fabsf(v[LARGEST]) < INFINITY;
        const float inverse = finite ? 1 / v[SUM] : NAN, log_sum = finite ? log2f(v[SUM]) : NAN;
        end = of_half(log_sum, 0) - of_half(log_sum, 1);
        if (place == 0) {
          kl_row &row = space.rows[box];
          row.from[half] = v[LARGEST], row.to[half] = (float)(factor * (double)inverse);
          if (half) row.of_p = inverse;
          arrive(space.known[box]);
        }
        if (cl.rank == 0 && place == 0 && p.stats) p.stats[3 * opens + half] = stream_lse(v[LARGEST], v[SUM]);
        if (cl.rank == 0 && threadIdx.x % WARP == 0 && p.stats) p.stats[3 * opens + 2] = 1 + 0 * end;
      }
      if (before[1] >= 0 && cl.rank == 0 && threadIdx.x % WARP == 0)
        div_put(p, before[1], true, (double)((v[LOSS] + ends[1]) * LN_2), 0, 0);
      before[1] = before[0], ends[1] = ends[0];
      before[0] = is_row ? opens : -1, ends[0] = end;
      opens = min(opens, end_row - 1);
    }
  }
};
#endif

template <class T> __device__ inline void kl(const div_problem &p, const div_walk &walk) {
#if __CUDA_ARCH__ >= 900
  __shared__ kl_space space;
  const kl_rows<T> rows(p, walk, space);
  const int warp = (int)threadIdx.x / WARP;
  if (threadIdx.x == 0) {
    for (int i = 0; i < DIV_STREAM_BUFFERS; ++i) init(space.arrived[i], 1), init(space.used[i], DIV_KL_WARPS);
    for (int i = 0; i < BOXES; ++i)
      init(space.opened[i], 2 * DIV_KL_WARPS), init(space.told[i], 1), init(space.known[i], 2);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_meet(rows.cl);
  if (warp < DIV_KL_WARPS)
    rows.work();
  else if (warp == ADDER)
    rows.add_up();
  else if (threadIdx.x == FETCHER * WARP)
    rows.fetch();
#endif
}

KERNEL_BY_DTYPE(divergence_stream_kl, (DIV_KL_THREADS, 1),
                (const __grid_constant__ div_problem p, const __grid_constant__ div_walk walk), kl<T>(p, walk))
