/* kl and reverse_kl of long rows whose sides are both logits: a loss, and with dinput its gradient, of one read of both.
 *
 * Working warps take two steps, between which their sums go through the cluster:
 *   open    a warp's largest logits, and its sums of exponentials that begin from there; reverse_kl's loss, too
 *   close   the gradient; what the warp adds to kl's loss, too
 * kl's gradient has the sum of all p, which is 1, and reverse_kl's has the loss. So a row needs no more than that. It is opened before the one
 * before it is closed, which gives the sums time. Logarithms are to base 2, as the hardware's are. */
#include "cuda/kernel/divergence_stream.cuh"

#if __CUDA_ARCH__ >= 900
/* What closes a row: exponents begin at `from`. kl: by `to` exponentials become the gradient, and by `of_p` probabilities. reverse_kl: so does
 * the exponential times the logarithms' difference less its mean, of which to[1] is the product. */
struct kl_row {
  void *out; /* its gradient */
  float from[2], to[2], of_p;
};

template <class T, bool REVERSE> struct kl_rows : stream_rows<T, DIV_KL_WARPS, kl_row> {
  typedef stream_rows<T, DIV_KL_WARPS, kl_row> base;
  using base::base, base::N, base::p, base::walk, base::space, base::cl, base::packs;
  using base::begin_row, base::end_row, base::held, base::next, base::each, base::each_class, base::get, base::dinput;
  using base::LN_2, base::open, base::say, base::tell, base::release, base::gradient_factor;

  /* The sum over the thread's classes of one side's exponentials, p's or reversed q's, times log p - log q or the reverse, but for the sums'
   * logarithms. 0 log 0 is 0, and anything else times Inf is Inf. */
  __device__ inline float weigh(const uint4 *row, float from_q, float from_t) const {
    float sum = 0;
    each_class(row, from_q, from_t, [&](int, float log_q, float log_p) {
      const float own = REVERSE ? log_q : log_p, v = REVERSE ? log_q - log_p : log_p - log_q, e = stream_exp2(own);
      sum = fabsf(v) < INFINITY ? fmaf(e, v, sum) : own == -INFINITY ? sum : fmaf(fmaxf(e, FLT_MIN), v, sum);
    });
    return sum;
  }

  /* What the warp says of a row when it opens it. */
  __device__ inline void open(int turn, const uint4 *row) const {
    float sums[CHAINS] = {};
    const float largest = open(turn, row, [&](int j, float log_q, float log_p, float e_q) {
      if (REVERSE) sums[j % CHAINS] = fmaf(e_q, log_q - log_p, sums[j % CHAINS]);
    });
    if (!REVERSE) return;
    const float from = largest == -INFINITY ? 0 : largest;
    float apart = sums[0] + sums[1];
    if (!__all_sync(0xffffffffu, fabsf(apart) < INFINITY)) apart = weigh(row, of_half(from, 0), of_half(from, 1));
    say(turn, OTHER, warp_all<op_sum>(apart));
  }

  /* The gradient; returns what the thread adds to the loss. */
  __device__ inline float close(const uint4 *row, const kl_row &of) const {
    float sums[CHAINS] = {}, sum = 0;
    if (p.dinput.data) {
      T *const out = (T *)of.out;
      each([&](int, int at) {
        float a[N], b[N];
        get(row, at, a, b);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          const float log_q = fmaf(a[j], walk.by[0], -of.from[0]), log_p = fmaf(b[j], walk.by[1], -of.from[1]);
          if (REVERSE) {
            const float v = stream_exp2(log_q) * fmaf(log_q - log_p, of.to[0], -of.to[1]);
            a[j] = log_q == -INFINITY ? 0 : v;
          } else {
            const float e = stream_exp2(log_p);
            sums[j % CHAINS] = fmaf(e, log_p - log_q, sums[j % CHAINS]);
            a[j] = fmaf(stream_exp2(log_q), of.to[0], -(e * of.to[1]));
          }
        }
        store_pack<T, N>(out + at * N, packed<T, N>(a));
      });
    }
    if (REVERSE) return 0;
    sum = sums[0] + sums[1];
    if (!p.dinput.data || !(fabsf(sum) < INFINITY)) sum = weigh(row, of.from[0], of.from[1]);
    return sum * of.of_p;
  }

  /* In turn i a warp opens row i and closes row i - 1. kl: it tells of the loss of row i - 2. */
  __device__ inline void work() const {
    int opens = begin_row - 1, closes = -1;
    int opened = 0, closed = 0;
    uint32_t phase = 0, ignored = 0;
    float lost = 0;
    for (int turn = 0, turns = 0; turn == 0 || turn < turns; ++turn) {
      const int r = next(opens + 1);
      const float loss = REVERSE ? 0 : warp_all<op_sum>(lost);
      const auto close_row = [&] {
        if (closes < 0) return;
        await_phase(space.known[box_of(turn - 1)], phase_of(turn - 1));
        lost = close(held(closed), space.rows[box_of(turn - 1)]);
        release(closed);
        next(closed, ignored);
      };
      opens = r;
      if (walk.buffers == 1) close_row(); /* row i needs it */
      if (opens < end_row) {
        if (packs > 0) await_phase(space.arrived[opened], phase);
        open(turn, held(opened));
        next(opened, phase);
        turns = turn + (REVERSE ? 2 : 3);
      }
      if (!REVERSE && turn < turns) say(turn, OTHER, stream_half() ? 0 : loss);
      if (REVERSE ? opens < end_row : turn < turns) tell(turn);
      if (walk.buffers > 1) close_row();
      closes = opens < end_row ? opens : -1;
      opens = min(opens, end_row - 1);
    }
  }

  __device__ inline void add_up() const {
    const int half = stream_half(), place = (int)threadIdx.x % HALF;
    const bool leads = cl.rank == 0 && threadIdx.x % WARP == 0;
    int opens = begin_row - 1, before[2] = {-1, -1}; /* rows that were opened in the two turns before */
    float ends[2] = {0, 0};                          /* what the sums add to their losses */
    for (int turn = 0;; ++turn) {
      const unsigned box = box_of(turn);
      float v[TOLD], end = 0;
      opens = next(opens + 1);
      const bool is_row = opens < end_row;
      if (!is_row && (REVERSE || (before[0] < 0 && before[1] < 0))) break;
      const double factor = is_row ? gradient_factor(opens) : 0;
      T *const out = is_row ? dinput(opens) : NULL;
      this->template add_all<REVERSE>(turn, v);
      if (is_row) {
        const bool finite = fabsf(v[LARGEST]) < INFINITY;
        const float inverse = finite ? 1 / v[SUM] : NAN, log_sum = finite ? log2f(v[SUM]) : NAN;
        kl_row &row = space.rows[box];
        end = of_half(log_sum, 0) - of_half(log_sum, 1);
        const float mean = REVERSE ? of_half(v[OTHER] * inverse, 0) : 0, loss = mean - end;
        __syncwarp(); /* all lanes have read what is told */
        if (place == 0) {
          row.from[half] = v[LARGEST];
          if (!REVERSE)
            row.to[half] = (float)(factor * (double)inverse);
          else if (half == 0)
            row.to[0] = (float)(factor * (double)(inverse * LN_2)),
            row.to[1] = (float)(factor * (double)(inverse * LN_2) * (double)(mean + 0 * end));
          if (half) row.of_p = inverse, row.out = out;
          mbarrier_arrive(shared_address(&space.known[box]));
        }
        if (cl.rank == 0 && place == 0 && p.stats) p.stats[3 * (int64_t)opens + half] = stream_lse(v[LARGEST], v[SUM]);
        if (leads && p.stats) p.stats[3 * (int64_t)opens + 2] = REVERSE ? loss * LN_2 : 1 + 0 * end;
        if (leads && REVERSE) div_put(p, opens, true, (double)(loss * LN_2), 0, 0);
      }
      if (!REVERSE && before[1] >= 0 && leads) div_put(p, before[1], true, (double)((v[OTHER] + ends[1]) * LN_2), 0, 0);
      before[1] = before[0], ends[1] = ends[0];
      before[0] = is_row ? opens : -1, ends[0] = end;
      opens = min(opens, end_row - 1);
    }
  }
};
#else
template <class T, bool REVERSE> struct kl_rows;
#endif

#define STREAM_KERNEL(name, REVERSE)                                                              \
  KERNEL_BY_DTYPE(divergence_stream_##name, ((DIV_KL_WARPS + 2) * WARP, 1),                       \
                  (const __grid_constant__ div_problem p, const __grid_constant__ div_walk walk), \
                  stream_run<kl_rows<T, REVERSE>, false>(p, walk))

STREAM_KERNEL(kl, false)
STREAM_KERNEL(reverse_kl, true)
