/* attention, forward, of 16-bit dtypes and heads of up to 128 on sm_90a. A block stays for many tiles of queries. One of its
 * warpgroups loads queries, keys and values into shared memory. The others have 64 queries each and take turns at the tensor
 * cores. So the exponentials of one hide behind the products of another. */
#include "cuda/attention.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/attention_wgmma.cuh"

template <int DIM_, int GROUPS_> struct shapes {
  enum {
    DIM = DIM_,
    GROUPS = GROUPS_,
    ROWS = GROUPS * GROUP_ROWS,
    STAGES = DIM == 64 ? ATTENTION_WGMMA_STAGES_64 : ATTENTION_WGMMA_STAGES_128,
    Q_BYTES = ROWS * DIM * 2,
    STAGE_BYTES = KEYS * DIM * 2,
    FEWER = GROUPS == 3 ? 32 : 24,
    MORE = GROUPS == 3 ? 160 : 240,
  };
};

/* A tile, as the warp that loads leaves it for the others. */
struct tile_task {
  int batch, head, first, count;
  int steps; /* 0: there is no tile any more */
  bool upwards;
  step_mask<KEYS> mask; /* what its first rows see */
};

template <class S> struct memory {
  enum { TASKS = 4 }; /* a tile's is still read when queries of the next two are there */
  ring<2> q;
  ring<S::STAGES> k, v;
  tile_task *tasks;

  __device__ explicit memory(unsigned at)
      : q(at, S::Q_BYTES, at + 2 * S::Q_BYTES + 2 * S::STAGES * S::STAGE_BYTES),
        k(at + 2 * S::Q_BYTES, S::STAGE_BYTES, q.barriers + 4 * BARRIER_BYTES),
        v(k.data + S::STAGES * S::STAGE_BYTES, S::STAGE_BYTES, k.barriers + 2 * S::STAGES * BARRIER_BYTES),
        tasks((tile_task *)__cvta_shared_to_generic(q.barriers + BARRIERS_BYTES)) {}
  __device__ tile_task &task(int tile) const { return tasks[tile % TASKS]; }
};

/* Where the values of a step are. */
struct value_place {
  int key, head, batch;
};

/* One thread does. Values come after the keys of the next step, which may be another tile's. */
template <class S>
__device__ inline void bring_tiles(const attention_problem &p, const attention_turns &turns, const attention_maps &maps,
                                   memory<S> &m) {
  tile_work w;
  value_place last = {-1, 0, 0};
  const auto bring_last = [&] {
    if (last.key >= 0) bring<S::DIM>(m.v, maps.v, KEYS, last.key, last.head, last.batch);
  };
  int tile = 0;
  for (int round = 0; round < turns.rounds; ++round) {
    if (!work_of<false, S::ROWS, KEYS>(p, turns, round, &w)) continue;
    if (w.steps == 0) w.steps = 1; /* no key is seen */
    const int kv = key_head(p, w.head);
    m.task(tile++) = {w.batch, w.head, w.first, w.count, w.steps, w.upwards, step_mask<KEYS>(w, w.first, (int)p.keys)};
    bring<S::DIM>(m.q, maps.q, S::ROWS, w.first, w.head, w.batch);
    for (int i = 0; i < w.steps; ++i) {
      const int key = w.begin + w.step(i) * KEYS;
      bring<S::DIM>(m.k, maps.k, KEYS, key, kv, w.batch);
      bring_last();
      last = {key, kv, w.batch};
    }
  }
  bring_last();
  m.task(tile).steps = 0;
  m.q.await_empty();
  mbarrier_arrive(m.q.full(m.q.stage));
}

/* The rows of a warp that are not finite though their sums are, one after the other. */
template <class T, int DIM>
__device__ inline void mend_rows(const attention_problem &p, const tile_task &w, const lane_place_of &lane, int row0,
                                 int count, const wgmma_block<DIM> &o, const float (&sum)[2], const head<T> &to,
                                 float scale) {
  bool fine[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    fine[i] = true;
#pragma unroll
    for (int j = 0; j < DIM / 8; ++j)
      fine[i] = fine[i] && fabsf(o.of[j][2 * i]) < INFINITY && fabsf(o.of[j][2 * i + 1]) < INFINITY;
    fine[i] = fine[i] || sum[i] == 0 || !(sum[i] < INFINITY) || lane.row(i) >= count;
  }
  const unsigned bad0 = __ballot_sync(0xffffffffu, !fine[0]), bad1 = __ballot_sync(0xffffffffu, !fine[1]);
  if (!(bad0 | bad1)) return;
  const int kv = key_head(p, w.head);
  const head<T> q = head_of<T>(p.q, w.batch, w.head, p.head_dim), k = head_of<T>(p.k, w.batch, kv, p.head_dim);
  const head<T> v = head_of<T>(p.v, w.batch, kv, p.head_dim);
  const band seen = band_of(p.tokens, p.keys, p.causal, p.window);
  __syncwarp();
  for (int r = 0; r < 16; ++r) {
    if (!((r < 8 ? bad0 : bad1) >> (4 * (r % 8)) & 15)) continue;
    const int64_t row = row0 + lane.first + r;
    attend_row<T, DIM>(q.data + row * q.pitch, k, v, to.data + row * to.pitch, clamp64(row + seen.low, 0, p.keys),
                       clamp64(row + seen.high, 0, p.keys), scale);
  }
}

/* After the products that read `to`: the compiler, which does not know that they still do, would write there before. */
__device__ static inline void move_weights(unsigned (&to)[KEYS / 16][4], const unsigned (&from)[KEYS / 16][4]) {
#pragma unroll
  for (int k = 0; k < KEYS / 16; ++k)
#pragma unroll
    for (int e = 0; e < 4; ++e) asm volatile("mov.b32 %0, %1;" : "=r"(to[k][e]) : "r"(from[k][e]));
}

/* What is not negative is not stored, but waited for. */
__device__ static inline void store_never(unsigned at, float v) {
  asm volatile(
      "{.reg .pred negative; setp.lt.f32 negative, %1, 0f00000000; @negative st.shared::cta.f32 [%0], %1;}" ::"r"(at),
      "f"(v)
      : "memory");
}

/* A tile's output, and the lse of its rows. */
template <class T, int DIM>
__device__ inline void finish_tile(const attention_problem &p, const tile_task &w, const lane_place_of &lane, int group,
                                   const wgmma_block<DIM> &o, const float (&max)[2], const float (&sums)[2],
                                   float scale) {
  const int row0 = w.first + group * GROUP_ROWS, count = w.count - group * GROUP_ROWS;
  const int64_t index = (int64_t)w.batch * p.q.heads + w.head;
  float sum[2], inverse[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    sum[i] = lanes_all<op_sum, 4>(sums[i]);
    inverse[i] = sum[i] == 0 ? 0 : 1 / sum[i];
    if (p.lse && lane.t == 0 && lane.row(i) < count)
      p.lse[index * p.tokens + row0 + lane.row(i)] = sum[i] == 0 ? -INFINITY : fmaf(max[i], 0.693147181f, logf(sum[i]));
  }
  const head<T> to = head_of<T>(p.o, w.batch, w.head, p.head_dim);
  store_rows<T, DIM>(lane, to, row0, count, o, inverse);
  mend_rows<T, DIM>(p, w, lane, row0, count, o, sum, to, scale);
}

/* A step's scores are made beside the product of the step before with its values. A tile's first step is the next one of the loop, too: its
 * scores are made beside the last product of the tile before. */
template <class T, class S> __device__ inline void attend_tiles(const attention_problem &p, memory<S> &m, int group) {
  enum { DIM = S::DIM };
  const lane_place_of lane;
  const turn<S::GROUPS> turn(group);
  const float scale = p.scale * 1.44269504f;
  lane_rows rows;
  wgmma_block<DIM> o = {};
  wgmma_block<KEYS> s;
  unsigned weights[KEYS / 16][4], next[KEYS / 16][4];
  unsigned q;
  int tile = 0, left, at, direction; /* steps that are left, the first of which is at */
  step_mask<KEYS> mask;
  const auto begin_tile = [&] {
    m.q.await_full();
    const tile_task &w = m.task(tile);
    q = m.q.at() + group * GROUP_ROWS * ROW_BYTES;
    left = w.steps, at = w.upwards ? 0 : w.steps - 1, direction = w.upwards ? 1 : -1;
    mask = w.mask.below(group * GROUP_ROWS);
    rows.max[0] = rows.max[1] = -INFINITY, rows.sum[0] = rows.sum[1] = 0;
    return left > 0;
  };
  const auto start_step = [&] {
    const uint64_t rows_of_q = wgmma_operand(agreed(q), 0), rows_of_k = wgmma_operand(agreed(m.k.at()), 0);
    m.k.await_full();
    turn.take();
    start_scores<T, DIM, S::ROWS>(s, rows_of_q, rows_of_k);
  };
  const auto soften = [&](unsigned(&to)[KEYS / 16][4]) {
    m.k.release();
#pragma unroll
    for (int i = 0; i < 2; ++i) rows.begin[i] = mask.begin(lane.row(i), at), rows.end[i] = mask.end(lane.row(i), at);
    soften_tile<T>(lane, fabsf(scale), scale < 0, mask.masked(at), s, rows, to);
    at += direction, --left;
  };
  const auto start_values = [&] {
    m.v.await_full();
    start_sums<T, DIM>(o, weights, wgmma_operand(agreed(m.v.at()), KEYS * ROW_BYTES));
  };
  const auto end_values = [&] {
    wgmma_wait<0>();
    wgmma_keep(o);
    m.v.release();
  };
  const auto both = [&] {
    start_step();
    start_values();
    turn.pass();
    wgmma_wait<1>();
    wgmma_keep(s);
    soften(next);
    store_never(m.q.barriers,
                rows.sum[0] + rows.sum[1]); /* the assembler would move the exponentials behind the wait */
    end_values();
  };
  if (!begin_tile()) return;
  start_step();
  turn.pass();
  wgmma_wait<0>();
  wgmma_keep(s);
  soften(weights);
  for (;;) {
#pragma unroll 1
    while (left > 0) {
      both();
      scale_output<DIM>(o, rows.factor);
      move_weights(weights, next);
    }
    const float max[2] = {rows.max[0], rows.max[1]}, sum[2] = {rows.sum[0], rows.sum[1]};
    m.q.release();
    ++tile;
    const bool more = begin_tile();
    if (!more) {
      turn.take();
      start_values();
      turn.pass();
      end_values();
    } else {
      both();
    }
    finish_tile<T, DIM>(p, m.task(tile - 1), lane, group, o, max, sum, scale);
    if (!more) break;
    o = {};
    move_weights(weights, next);
  }
  if (group == 0) turn.take(); /* what the last one passed */
}

template <class T, int DIM, int GROUPS>
__device__ inline void attend(const attention_problem &p, const attention_turns &turns, const attention_maps &maps) {
  typedef shapes<DIM, GROUPS> S;
  memory<S> m(shared_begin());
  if (threadIdx.x == 0) {
    m.q.init(1, S::GROUPS * GROUP_WARPS);
    m.k.init(1, S::GROUPS * GROUP_WARPS);
    m.v.init(1, S::GROUPS * GROUP_WARPS);
    mbarriers_are_made();
  }
  __syncthreads();
  const int role = warpgroup_index();
  if (role == 0) {
    registers_fewer<S::FEWER>();
    if (threadIdx.x == 0) bring_tiles<S>(p, turns, maps, m);
  } else {
    registers_more<S::MORE>();
    attend_tiles<T, S>(p, m, role - 1);
  }
}
#else /* nothing launches these */
#include "cuda/kernel/element.cuh"
typedef tigon_attention_fwd_problem attention_problem;
template <class T, int DIM, int GROUPS>
__device__ inline void attend(const attention_problem &, const attention_turns &, const attention_maps &) {}
#endif

#define KERNEL(name, T, dim, groups)                                                                       \
  extern "C" __global__ void __launch_bounds__(ATTENTION_WGMMA_THREADS(groups), 1)                         \
      attention_fwd_wgmma_##name(const __grid_constant__ attention_problem p, const attention_turns turns, \
                                 const __grid_constant__ attention_maps maps) {                            \
    attend<T, dim, groups>(p, turns, maps);                                                                \
  }
#define KERNELS(name, dim, groups) KERNEL(name##_f16, f16, dim, groups) KERNEL(name##_bf16, bf16, dim, groups)
KERNELS(64, 64, ATTENTION_WGMMA_GROUPS_64)
KERNELS(64_short, 64, ATTENTION_WGMMA_GROUPS_SHORT)
KERNELS(128, 128, ATTENTION_WGMMA_GROUPS_128)
