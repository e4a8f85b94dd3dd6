/* Long rows of both sides, which the blocks of a cluster share. They have some rows, one after the other. Of a block's warps one brings rows
 * into shared memory, and one adds up what warps and blocks tell. The others work, and read no more than the sums. */
#ifndef TIGON_CUDA_KERNEL_DIVERGENCE_STREAM_CUH
#define TIGON_CUDA_KERNEL_DIVERGENCE_STREAM_CUH

#include "core/labels.h"
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/divergence_math.cuh"
#include "cuda/kernel/divergence_mail.cuh"

#if __CUDA_ARCH__ >= 900
extern __shared__ uint4 stream_held[]; /* [buffers, 2, slice] */

enum {
  BLOCKS = 8, /* a cluster has at most */
  BOXES = 2,
  CHAINS = 2 /* sums that do not wait for each other */
};
/* What is told of a row's sides: the largest logit, the sum of exponentials from there on, and a number more. */
enum { LARGEST, SUM, OTHER, TOLD };

/* ROW: what working warps know of a row. */
template <int WARPS, class ROW> struct stream_space {
  uint64_t arrived[DIV_STREAM_BUFFERS], used[DIV_STREAM_BUFFERS]; /* mbarriers: of buffers */
  uint64_t opened[BOXES], told[BOXES], known[BOXES];              /* the same: what warps, and blocks, have; the row */
  float of_warps[BOXES][TOLD][WARPS][2], of_blocks[BOXES][TOLD][BLOCKS][2];
  ROW rows[BOXES];
};

/* Every other turn's box, and the phase of its barrier. */
__device__ static inline unsigned box_of(unsigned turn) { return turn % BOXES; }
__device__ static inline uint32_t phase_of(unsigned turn) { return turn / BOXES & 1; }

template <class T, int WORKERS, class ROW> struct stream_rows {
  enum { N = pack<T>::N, WARPS = WORKERS, FETCHER = WORKERS, ADDER, STEP = WARPS * WARP };
  enum { MOST = (DIV_STREAM_ELEMENTS * DIV_STREAM_THREADS / N + STEP - 1) / STEP /* packs of a thread */ };
  static constexpr float LN_2 = 0.6931471805599453f;
  typedef stream_space<WARPS, ROW> space_type;
  static_assert(sizeof(space_type) <= DIV_STREAM_SPACE, "as the launcher has it");
  const div_problem &p;
  const div_walk &walk;
  space_type &space;
  const cluster cl;
  const int begin, packs; /* the block's part of a row */
  const int begin_row, end_row;

  __device__ stream_rows(const div_problem &p, const div_walk &walk, space_type &space)
      : p(p), walk(walk), space(space), cl(cluster_of_block()), begin(cl.rank * walk.slice),
        packs(min(walk.slice, max((int)p.cols / N - begin, 0))), begin_row(blockIdx.x / cl.size * (int)walk.rows),
        end_row(min(begin_row + (int)walk.rows, (int)p.space.rows)) {}

  /* Before any of the warps begins. */
  __device__ inline void begin_all() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < DIV_STREAM_BUFFERS; ++i)
        mbarrier_init(shared_address(&space.arrived[i]), 1), mbarrier_init(shared_address(&space.used[i]), WARPS);
      for (int i = 0; i < BOXES; ++i)
        mbarrier_init(shared_address(&space.opened[i]), 2 * WARPS), mbarrier_init(shared_address(&space.told[i]), 1),
            mbarrier_init(shared_address(&space.known[i]), 2);
      mbarriers_are_made();
    }
    cluster_meet(cl);
  }

  /* The block's part of the input, and of the target behind it. */
  __device__ inline uint4 *held(int buffer) const { return stream_held + buffer * 2 * walk.slice; }
  __device__ inline void next(int &buffer, uint32_t &phase) const {
    buffer = buffer + 1 == walk.buffers ? 0 : buffer + 1;
    phase ^= buffer == 0;
  }
  /* The first row from r on that counts. */
  __device__ inline int next(int r) const {
    while (r < end_row && !tigon_divergence_counts(&p, r)) ++r;
    return r;
  }

  /* f(k, at) of the thread's packs; `at` of the block's. */
  template <class F> __device__ inline void each(F f) const {
#pragma unroll
    for (int k = 0; k < MOST; ++k) {
      const int at = k * STEP + (int)threadIdx.x;
      if (at >= packs) break;
      f(k, at);
    }
  }
  /* Elements of a pack of the input and of the target. */
  __device__ inline void get(const uint4 *row, int at, float (&a)[N], float (&b)[N]) const {
    unpack(pack_of<T>(row[at]), a);
    unpack(pack_of<T>(row[walk.slice + at]), b);
  }
  /* f(j, log_q, log_p) of the thread's elements, j of their pack. Logarithms begin at from_q and from_t. */
  template <class F> __device__ inline void each_class(const uint4 *row, float from_q, float from_t, F f) const {
    each([&](int, int at) {
      float a[N], b[N];
      get(row, at, a, b);
#pragma unroll
      for (int j = 0; j < N; ++j) f(j, fmaf(a[j], walk.by[0], -from_q), fmaf(b[j], walk.by[1], -from_t));
    });
  }
  __device__ inline T *dinput(int64_t r) const { return row_of<T>(p.space, p.dinput, r) + begin * N; }

  /* ---- the warp that fetches ---- */

  /* Rows [r, end), which do not count. */
  __device__ inline void skip(int r, int end) const {
    const int lane = (int)threadIdx.x % WARP;
    for (; r < end; ++r) {
      if (p.dinput.data) {
        T *const out = dinput(r);
#pragma unroll 4
        for (int at = lane; at < packs; at += WARP) store_pack<T, N>(out + at * N, zero_pack<T, N>());
      }
      if (cl.rank != 0 || lane != 0) continue;
      div_put(p, r, false, 0, 0, 0);
      for (int i = 0; p.stats && i < 3; ++i) p.stats[3 * (int64_t)r + i] = 0;
    }
  }

  __device__ inline void prefetch(int r, int bytes) const {
    stream_prefetch(row_of<T>(p.space, p.input, r) + begin * N, bytes);
    stream_prefetch(row_of<T>(p.space, p.target, r) + begin * N, bytes);
  }

  /* FAR: the row after one that is fetched comes into the L2, as no buffer is free for it yet. */
  template <bool FAR> __device__ inline void fetch() const {
    const int bytes = packs * 16;
    int buffer = 0, done = begin_row; /* done: the first row with which nothing is done yet */
    uint32_t phase = 1;               /* at first all are used up */
    for (int r = next(begin_row); packs > 0 && r < end_row; next(buffer, phase)) {
      const int after = next(r + 1);
      await_phase(space.used[buffer], phase);
      if (threadIdx.x % WARP == 0) {
        mbarrier_arrive_expect(shared_address(&space.arrived[buffer]), 2 * bytes);
        stream_copy(held(buffer), row_of<T>(p.space, p.input, r) + begin * N, bytes, space.arrived[buffer]);
        stream_copy(held(buffer) + walk.slice, row_of<T>(p.space, p.target, r) + begin * N, bytes,
                    space.arrived[buffer]);
        if (FAR && after < end_row) prefetch(after, bytes);
      }
      skip(done, r);
      done = r + 1, r = after;
    }
    skip(done, end_row);
  }

  /* ---- the warps that work ---- */

  /* Halves of the warp say a number of a turn to the warp that adds up; then, that they have said all. */
  __device__ inline void say(int turn, int what, float v) const {
    if (threadIdx.x % HALF == 0) (&space.of_warps[box_of(turn)][what][0][0])[threadIdx.x / HALF] = v;
  }
  __device__ inline void tell(int turn) const {
    __syncwarp(); /* all lanes have read the row that this box has had */
    if (threadIdx.x % HALF == 0) mbarrier_arrive(shared_address(&space.opened[box_of(turn)]));
  }

  /* The halves of the warp say what a side has; returns its largest logit. Also f(j, log_q, log_p, e_q) of all elements, with logarithms
   * from the warp's largest on. With nothing but -Inf exponentials are 0, not NaN, so that other warps can have the rest. */
  template <class F> __device__ inline float open(int turn, const uint4 *row, F f) const {
    stream_most<T> most_q, most_t;
    each([&](int, int at) { most_q.raise(row[at]), most_t.raise(row[walk.slice + at]); });
    const float largest = both_all<op_max>(most_q.largest() * walk.by[0], most_t.largest() * walk.by[1]);
    const float from = largest == -INFINITY ? 0 : largest, from_q = of_half(from, 0), from_t = of_half(from, 1);
    float sums[2][CHAINS] = {};
    say(turn, LARGEST, largest);
    each_class(row, from_q, from_t, [&](int j, float log_q, float log_p) {
      const float e_q = stream_exp2(log_q);
      sums[0][j % CHAINS] += e_q;
      sums[1][j % CHAINS] += stream_exp2(log_p);
      f(j, log_q, log_p, e_q);
    });
    say(turn, SUM, both_all<op_sum>(sums[0][0] + sums[0][1], sums[1][0] + sums[1][1]));
    return largest;
  }

  /* When the warp has read a buffer. */
  __device__ inline void release(int buffer) const {
    __syncwarp();
    if (threadIdx.x % WARP == 0) mbarrier_arrive(shared_address(&space.used[buffer]));
  }

  /* ---- the warp that adds up ---- */

  /* What `count` warps or blocks have told, of the half's side. Each of them has made its sums from its own largest logits on.
   * APART: the other number is the sum of exponentials of q times log_q - log_p. */
  template <bool APART, int MOST_OF>
  __device__ static inline void add(const float (&told)[TOLD][MOST_OF][2], int count, float (&v)[TOLD]) {
    enum { EACH = (MOST_OF + HALF - 1) / HALF };
    const int half = stream_half(), place = (int)threadIdx.x % HALF;
    float own[EACH];
    v[LARGEST] = -INFINITY, v[SUM] = 0, v[OTHER] = 0;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      own[e] = place + e * HALF < count ? told[LARGEST][place + e * HALF][half] : -INFINITY;
      v[LARGEST] = op_max::of(own[e], v[LARGEST]);
    }
    v[LARGEST] = half_all<op_max>(v[LARGEST]);
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
      float above = own[e] - (v[LARGEST] == -INFINITY ? 0 : v[LARGEST]), other_above = 0;
      if (APART) { /* exponentials of a side without logits begin at 0 */
        other_above = __shfl_xor_sync(0xffffffffu, own[e] == -INFINITY ? 0 : above, HALF);
      }
      if (place + e * HALF >= count) continue;
      const float by = stream_exp2(above), sum = told[SUM][place + e * HALF][half];
      const float other = told[OTHER][place + e * HALF][half];
      v[SUM] += sum * by;
      if (!APART)
        v[OTHER] += other;
      else if (sum > 0 && half == 0) /* Inf stays so */
        v[OTHER] += fmaxf(by, FLT_MIN) * fmaf(sum, above - other_above, other);
    }
    v[SUM] = half_all<op_sum>(v[SUM]), v[OTHER] = half_all<op_sum>(v[OTHER]);
  }

  /* What all warps of the block tell in a turn, and then all blocks. A lane tells the block of its place in its half. */
  template <bool APART> __device__ inline void add_all(int turn, float (&v)[TOLD]) const {
    const unsigned box = box_of(turn);
    const int half = stream_half(), place = (int)threadIdx.x % HALF;
    float(&told)[TOLD][BLOCKS][2] = space.of_blocks[box];
    await_phase(space.opened[box], phase_of(turn));
    add<APART>(space.of_warps[box], WARPS, v);
    if (cl.size == 1) return;
    if (threadIdx.x % WARP == 0) mbarrier_arrive_expect(shared_address(&space.told[box]), cl.size * (int)sizeof v * 2);
    for (int i = 0; place < cl.size && i < TOLD; ++i)
      cluster_send(&told[i][cl.rank][half], v[i], space.told[box], place);
    await_phase(space.told[box], phase_of(turn));
    add<APART>(told, cl.size, v);
  }

  __device__ inline double gradient_factor(int64_t r) const {
    const double scale = (double)p.soft * (double)tigon_logit_scale(&p.input_map) * (double)p.inverse_temperature;
    return p.dinput.data ? scale * div_factor(p, walk, r) : 0;
  }
};
#endif

/* Each warp's part in ROWS: in the end all blocks of the cluster have told all that others wait for. */
template <class ROWS, bool FAR> __device__ inline void stream_run(const div_problem &p, const div_walk &walk) {
#if __CUDA_ARCH__ >= 900
  __shared__ typename ROWS::space_type space;
  const ROWS rows(p, walk, space);
  const int warp = (int)threadIdx.x / WARP;
  rows.begin_all();
  if (warp < ROWS::WARPS)
    rows.work();
  else if (warp == ROWS::ADDER)
    rows.add_up();
  else
    rows.template fetch<FAR>();
#endif
}

#endif
