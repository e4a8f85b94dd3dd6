/* attention, forward, of 16-bit dtypes and heads of up to 128 on sm_90a. A block stays for many tiles of queries. One of its
 * warpgroups loads queries, keys and values into shared memory. The others have 64 queries each and take turns at the tensor
 * cores. So the exponentials of one hide behind the products of another. */
#include "cuda/attention.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/attention_wgmma.cuh"

template <int DIM> struct shapes {
  enum {
    GROUPS = DIM == 64 ? ATTENTION_WGMMA_GROUPS_64 : ATTENTION_WGMMA_GROUPS_128,
    ROWS = GROUPS * GROUP_ROWS,
    STAGES = DIM == 64 ? ATTENTION_WGMMA_STAGES_64 : ATTENTION_WGMMA_STAGES_128,
    PANELS = DIM / 64,
    Q_BYTES = ROWS * DIM * 2,
    STAGE_BYTES = KEYS * DIM * 2,
    FEWER = GROUPS == 3 ? 32 : 24,
    MORE = GROUPS == 3 ? 160 : 240,
  };
};

template <int DIM> struct memory {
  ring<1> q;
  ring<shapes<DIM>::STAGES> k, v;

  __device__ explicit memory(unsigned at)
      : q(at, shapes<DIM>::Q_BYTES, at + shapes<DIM>::Q_BYTES + 2 * shapes<DIM>::STAGES * shapes<DIM>::STAGE_BYTES),
        k(at + shapes<DIM>::Q_BYTES, shapes<DIM>::STAGE_BYTES, q.barriers + 2 * BARRIER_BYTES),
        v(k.data + shapes<DIM>::STAGES * shapes<DIM>::STAGE_BYTES, shapes<DIM>::STAGE_BYTES,
          k.barriers + 2 * shapes<DIM>::STAGES * BARRIER_BYTES) {}
};

/* One thread does. */
template <int DIM>
__device__ inline void bring_tiles(const attention_problem &p, const attention_turns &turns, const attention_maps &maps,
                                   memory<DIM> &m) {
  tile_work w;
  for (int round = 0; round < turns.rounds; ++round) {
    if (!work_of<false, shapes<DIM>::ROWS, KEYS>(p, turns, round, &w) || w.steps == 0) continue;
    const int kv = key_head(p, w.head);
    bring<DIM>(m.q, maps.q, shapes<DIM>::ROWS, w.first, w.head, w.batch);
    bring<DIM>(m.k, maps.k, KEYS, w.begin + w.step(0) * KEYS, kv, w.batch);
    for (int i = 1; i <= w.steps; ++i) {
      if (i < w.steps) bring<DIM>(m.k, maps.k, KEYS, w.begin + w.step(i) * KEYS, kv, w.batch);
      bring<DIM>(m.v, maps.v, KEYS, w.begin + w.step(i - 1) * KEYS, kv, w.batch);
    }
  }
}

/* The rows of a warp that are not finite though their sums are, one after the other. */
template <class T, int DIM>
__device__ inline void mend_rows(const attention_problem &p, const tile_work &w, const lane_place_of &lane, int row0,
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
  __syncwarp();
  for (int r = 0; r < 16; ++r) {
    if (!((r < 8 ? bad0 : bad1) >> (4 * (r % 8)) & 15)) continue;
    const int64_t row = row0 + lane.first + r;
    attend_row<T, DIM>(q.data + row * q.pitch, k, v, to.data + row * to.pitch, clamp64(row + w.seen.low, 0, p.keys),
                       clamp64(row + w.seen.high, 0, p.keys), scale);
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

template <class T, int DIM>
__device__ inline void attend_tiles(const attention_problem &p, const attention_turns &turns, memory<DIM> &m,
                                    int group) {
  typedef shapes<DIM> S;
  const lane_place_of lane;
  const turn<S::GROUPS> turn(group);
  const float scale = p.scale * 1.44269504f;
  tile_work w;
  for (int round = 0; round < turns.rounds; ++round) {
    if (!work_of<false, shapes<DIM>::ROWS, KEYS>(p, turns, round, &w)) continue;
    const int row0 = w.first + group * GROUP_ROWS, count = w.count - group * GROUP_ROWS;
    const step_mask<KEYS> mask(w, row0, (int)p.keys);
    lane_rows rows = {.max = {-INFINITY, -INFINITY}};
    wgmma_block<DIM> o = {};
    const auto soften = [&](wgmma_block<KEYS> &s, int step, unsigned(&weights)[KEYS / 16][4]) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        rows.begin[i] = mask.begin(lane.row(i), step), rows.end[i] = mask.end(lane.row(i), step);
      soften_tile<T>(lane, fabsf(scale), scale < 0, mask.masked(step), s, rows, weights);
    };
    if (w.steps > 0) {
      const uint64_t q = wgmma_operand(m.q.at() + group * GROUP_ROWS * ROW_BYTES, 0);
      unsigned weights[KEYS / 16][4], next[KEYS / 16][4];
      wgmma_block<KEYS> s;
      m.q.await_full();
      m.k.await_full();
      turn.take();
      start_scores<T, DIM, S::ROWS>(s, q, wgmma_operand(m.k.at(), 0));
      turn.pass();
      wgmma_wait<0>();
      wgmma_keep(s);
      m.k.release();
      soften(s, w.step(0), weights);
#pragma unroll 1
      for (int i = 1; i < w.steps; ++i) {
        m.k.await_full();
        turn.take();
        start_scores<T, DIM, S::ROWS>(s, q, wgmma_operand(m.k.at(), 0));
        m.v.await_full();
        start_sums<T, DIM>(o, weights, wgmma_operand(m.v.at(), KEYS * ROW_BYTES));
        turn.pass();
        wgmma_wait<1>();
        wgmma_keep(s);
        m.k.release();
        soften(s, w.step(i), next);
        store_never(m.q.barriers,
                    rows.sum[0] + rows.sum[1]); /* the assembler would move the exponentials behind the wait */
        wgmma_wait<0>();
        wgmma_keep(o);
        m.v.release();
        scale_output<DIM>(o, rows.factor);
        move_weights(weights, next);
      }
      m.q.release();
      m.v.await_full();
      turn.take();
      start_sums<T, DIM>(o, weights, wgmma_operand(m.v.at(), KEYS * ROW_BYTES));
      turn.pass();
      wgmma_wait<0>();
      wgmma_keep(o);
      m.v.release();
    }
    float inverse[2];
    const int64_t index = (int64_t)w.batch * p.q.heads + w.head;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float sum = rows.sum[i] = lanes_all<op_sum, 4>(rows.sum[i]);
      inverse[i] = sum == 0 ? 0 : 1 / sum;
      if (p.lse && lane.t == 0 && lane.row(i) < count)
        p.lse[index * p.tokens + row0 + lane.row(i)] =
            sum == 0 ? -INFINITY : fmaf(rows.max[i], 0.693147181f, logf(sum));
    }
    const head<T> to = head_of<T>(p.o, w.batch, w.head, p.head_dim);
    store_rows<T, DIM>(lane, to, row0, count, o, inverse);
    mend_rows<T, DIM>(p, w, lane, row0, count, o, rows.sum, to, scale);
  }
  if (group == 0) turn.take(); /* what the last one passed */
}

template <class T, int DIM>
__device__ inline void attend(const attention_problem &p, const attention_turns &turns, const attention_maps &maps) {
  memory<DIM> m(shared_begin());
  if (threadIdx.x == 0) {
    m.q.init(1, shapes<DIM>::GROUPS * GROUP_WARPS);
    m.k.init(1, shapes<DIM>::GROUPS * GROUP_WARPS);
    m.v.init(1, shapes<DIM>::GROUPS * GROUP_WARPS);
    mbarriers_are_made();
  }
  __syncthreads();
  const int role = warpgroup_index();
  if (role == 0) {
    registers_fewer<shapes<DIM>::FEWER>();
    if (threadIdx.x == 0) bring_tiles<DIM>(p, turns, maps, m);
  } else {
    registers_more<shapes<DIM>::MORE>();
    attend_tiles<T, DIM>(p, turns, m, role - 1);
  }
}
#else /* nothing launches these */
#include "cuda/kernel/element.cuh"
typedef tigon_attention_fwd_problem attention_problem;
template <class T, int DIM>
__device__ inline void attend(const attention_problem &, const attention_turns &, const attention_maps &) {}
#endif

#define KERNEL(name, T, dim)                                                                               \
  extern "C" __global__ void __launch_bounds__(ATTENTION_WGMMA_THREADS(dim), 1)                            \
      attention_fwd_wgmma_##name(const __grid_constant__ attention_problem p, const attention_turns turns, \
                                 const __grid_constant__ attention_maps maps) {                            \
    attend<T, dim>(p, turns, maps);                                                                        \
  }
KERNEL(64_f16, f16, 64)
KERNEL(64_bf16, bf16, 64)
KERNEL(128_f16, f16, 128)
KERNEL(128_bf16, bf16, 128)
