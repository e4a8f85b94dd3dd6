/* jsd and tvd of long rows whose sides are both logits: a loss, and with dinput its gradient, of one read of both.
 *
 * Working warps take three steps, between which their sums go through the cluster:
 *   open    a warp's largest logits, and its sums of exponentials that begin from there
 *   weigh   what each class adds to the loss, and what its gradient is made of, which stays in registers
 *   close   the gradient
 * In a turn they open a row, close the one that was opened two turns before, and weigh the one between. So all sums of a turn go at once, while
 * the next row is opened. Logarithms are to base 2, as the hardware's are. */
#include "cuda/kernel/divergence_stream.cuh"

#if __CUDA_ARCH__ >= 900
/* What working warps know of the row of a turn's opening, and of the row of its weighing. */
struct held_row {
  bool opened, weighed, last; /* is there one? last: none of the rows after is one */
  int of_opened, of_weighed;  /* its buffer */
  void *out;                  /* the gradient of the row of the weighing */
  float from[2], apart;       /* exponents begin at `from`; jsd: log2, tvd: ratio of q's sum of exponentials to p's */
  float by, less;             /* a class's gradient is q's exponential times (w * by - less) */
};

template <class T, bool JSD> struct held_rows : stream_rows<T, DIV_HELD_WARPS, held_row> {
  typedef stream_rows<T, DIV_HELD_WARPS, held_row> base;
  using base::base, base::N, base::p, base::walk, base::space, base::cl, base::packs;
  using base::begin_row, base::end_row, base::held, base::next, base::each, base::get, base::dinput;
  using base::LN_2, base::STEP, base::open, base::say, base::tell, base::release, base::gradient_factor;
  enum { HELD = DIV_HELD_ELEMENTS / N /* packs of a thread that stay in registers */ };

  /* Do rows take three turns each, one after the other? So they must where shared memory lacks room for what they need. */
  __device__ inline bool takes_three() const { return walk.buffers == 1 || (walk.buffers == 2 && weighs_twice()); }
  /* What the registers do not hold is weighed again to close the row. */
  __device__ inline bool weighs_twice() const { return walk.slice > HELD * STEP; }

  /* For a class with logits a and b: q's exponential, what its gradient has beside it, and the terms of both sums.
   * jsd: log m - log q and log m - log p, of m = (1 - beta) q + beta p where both have q's unit. Exponents have a least one, so that 0 times them
   * is 0, and so has m. tvd: |q - p|, and half its sign times q. */
  __device__ inline void weigh(const held_row &row, float a, float b, float &u, float &w, float &of_first,
                               float &of_second) const {
    const float log_q = fmaf(a, walk.by[0], -row.from[0]), log_p = fmaf(b, walk.by[1], -row.from[1]);
    if constexpr (JSD) {
      constexpr float LEAST = -512;
      const float x = fmaxf(log_q, LEAST), y = fmaxf(log_p + row.apart, LEAST), e = stream_exp2(y);
      u = stream_exp2(x);
      const float m = stream_log2(fmaf(e, walk.mixing.beta, fmaf(u, walk.mixing.rest, FLT_MIN)));
      w = m - x;
      of_first = fmaf(u, w, of_first), of_second = fmaf(e, m - y, of_second);
    } else {
      u = stream_exp2(log_q);
      const float off = fmaf(stream_exp2(log_p), -row.apart, u);
      w = __saturatef(fmaf(off, 0x1p127f, 0.5f)) - 0.5f;
      of_first += fabsf(off), of_second = fmaf(u, w, of_second);
    }
  }

  /* The row that is opened in a turn, or -1; `at` is the first one that is not opened yet. */
  __device__ inline int opens_in(int turn, int &at) const {
    if (takes_three() && turn % 3 != 0) return -1;
    at = next(at);
    return at < end_row ? at++ : -1;
  }

  /* The sums of the thread's classes, one a half of the warp. */
  __device__ inline float weigh_all(const uint4 *held, const held_row &row, float (&u)[HELD * N],
                                    float (&w)[HELD * N]) const {
    float sums[2] = {0, 0};
    each([&](int k, int at) {
      float a[N], b[N];
      get(held, at, a, b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        float of, part;
        weigh(row, a[j], b[j], of, part, sums[0], sums[1]);
        if (k < HELD) u[k % HELD * N + j] = of, w[k % HELD * N + j] = part;
      }
    });
    return both_all<op_sum>(sums[0], sums[1]);
  }

  /* The gradient by `row`, of what registers hold; the rest of it is weighed again as `opened` says. */
  __device__ inline void close(const uint4 *held, const held_row &opened, const held_row &row,
                               const float (&u)[HELD * N], const float (&w)[HELD * N]) const {
    const float by = row.by, less = row.less;
    T *const out = (T *)row.out;
    each([&](int k, int at) {
      float a[N], b[N], again[2], ignored[2] = {0, 0};
      if (k >= HELD) get(held, at, a, b);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        if (k >= HELD) weigh(opened, a[j], b[j], again[0], again[1], ignored[0], ignored[1]);
        const float of = k < HELD ? u[k % HELD * N + j] : again[0], part = k < HELD ? w[k % HELD * N + j] : again[1];
        a[j] = of * fmaf(part, by, -less);
      }
      store_pack<T, N>(out + at * N, packed<T, N>(a));
    });
  }

  __device__ inline void work() const {
    float u[HELD * N], w[HELD * N];
    int at = begin_row;
    unsigned opening = 0; /* twice a buffer, and its phase */
    for (int turn = 0;; ++turn) {
      const held_row &before = space.rows[box_of(turn + 1)];
      const bool opens = opens_in(turn, at) >= 0;
      if (turn == 0 && !opens) break;
      if (opens) {
        if (packs > 0) await_phase(space.arrived[opening / 2], opening & 1);
        open(turn, held((int)(opening / 2)), [](int, float, float, float) {});
        opening += 2;
        if (opening / 2 == (unsigned)walk.buffers) opening = ~opening & 1;
      }
      if (turn > 0) {
        await_phase(space.known[box_of(turn - 1)], phase_of(turn - 1));
        if (before.weighed) {
          if (p.dinput.data) close(held(before.of_weighed), space.rows[box_of(turn)], before, u, w);
          if (weighs_twice()) release(before.of_weighed);
        }
        if (before.last) break;
        if (before.opened) {
          say(turn, OTHER, weigh_all(held(before.of_opened), before, u, w));
          if (!weighs_twice()) release(before.of_opened);
        }
      }
      tell(turn);
    }
  }

  __device__ inline void add_up() const {
    const int half = stream_half(), place = (int)threadIdx.x % HALF;
    const bool leads = cl.rank == 0 && threadIdx.x % WARP == 0;
    int at = begin_row, weighs = -1, of_weighs = 0, opening = 0;
    uint32_t ignored = 0;
    float inverse = 0; /* 1 / q's sum of exponentials, in the row that is weighed */
    for (int turn = 0;; ++turn) {
      held_row &row = space.rows[box_of(turn)];
      float v[TOLD];
      const int opens = opens_in(turn, at);
      if (turn == 0 && opens < 0) break;
      at = next(at);
      const bool last = opens < 0 && at >= end_row;
      const double factor = weighs >= 0 ? gradient_factor(weighs) : 0;
      T *const out = weighs >= 0 ? dinput(weighs) : NULL;
      this->template add_all<false>(turn, v);
      const float first = of_half(v[OTHER], 0) * inverse, second = of_half(v[OTHER], 1) * inverse;
      const float rest = walk.mixing.rest, mean = JSD ? first : second;
      const float off = JSD ? -(LN_2 * rest * first) : second;
      const float loss = JSD ? -LN_2 * fmaf(rest, first, walk.mixing.beta * second) : 0.5f * first;
      const bool finite = fabsf(v[LARGEST]) < INFINITY;
      const float log_sum = finite ? log2f(v[SUM]) : NAN, log_q = of_half(log_sum, 0), log_p = of_half(log_sum, 1);
      const float sum_q = of_half(v[SUM], 0), sum_p = of_half(v[SUM], 1);
      const double by = factor * (JSD ? -(double)(LN_2 * rest) : 1) * (double)inverse;
      __syncwarp(); /* all lanes have read what is told */
      if (place == 0) {
        row.from[half] = v[LARGEST];
        if (half == 0)
          row.by = (float)by, row.less = (float)(by * (double)mean), row.weighed = weighs >= 0,
          row.of_weighed = of_weighs, row.out = out;
        else
          row.last = last, row.apart = JSD ? log_q - log_p : sum_q / sum_p, row.opened = opens >= 0,
          row.of_opened = opening;
        mbarrier_arrive(shared_address(&space.known[box_of(turn)]));
      }
      if (cl.rank == 0 && place == 0 && opens >= 0 && p.stats)
        p.stats[3 * (int64_t)opens + half] = stream_lse(v[LARGEST], v[SUM]);
      if (leads && weighs >= 0) {
        div_put(p, weighs, true, (double)loss, 0, 0);
        if (p.stats) p.stats[3 * (int64_t)weighs + 2] = off;
      }
      inverse = 1 / sum_q + 0 * (log_q + log_p);
      if (last) break;
      weighs = opens, of_weighs = opening;
      if (opens >= 0) next(opening, ignored);
    }
  }
};
#else
template <class T, bool JSD> struct held_rows;
#endif

#define STREAM_KERNEL(name, JSD)                                                                  \
  KERNEL_BY_DTYPE(divergence_stream_##name, ((DIV_HELD_WARPS + 2) * WARP, 1),                     \
                  (const __grid_constant__ div_problem p, const __grid_constant__ div_walk walk), \
                  stream_run<held_rows<T, JSD>, true>(p, walk))

STREAM_KERNEL(jsd, true)
STREAM_KERNEL(tvd, false)
