/* attention, backward, of 16-bit dtypes and heads of up to 128 on sm_90a, with the scores made once: five products of a pair of tiles. A block
 * has a tile of keys, whose dk and dv stay in registers, and meets the queries step by step. A step's slopes go through shared memory to a
 * product that makes the tile's part of dq. Blocks add their parts to sums in f32, in the order of their tiles, so that the bits of dq are
 * always the same. Another kernel turns the sums into dq.
 *
 * One warp brings tiles, two add parts of dq, and two warpgroups have 64 keys each. */
#include "cuda/attention.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/attention_once.cuh"
#include "cuda/kernel/overlap.cuh"

template <int DIM>
__device__ inline void bring_tiles(const attention_problem &p, const attention_once &once,
                                   const attention_bwd_maps &maps, once_memory<DIM> &m) {
  typedef once_memory<DIM> M;
  const int lane = (int)threadIdx.x, all = once.tiles * once.heads;
  for (;;) {
    int index = __shfl_sync(0xffffffffu, lane == 0 ? atomicAdd(once.turns, 1) : 0, 0);
    if (index >= all) index = -1;
    m.tiles.await_empty();
    if (lane == 0) {
      asm volatile("st.shared::cta.s32 [%0], %1;" ::"r"(m.tiles.data), "r"(index) : "memory");
      mbarrier_arrive(m.tiles.full(0));
    }
    m.tiles.next();
    if (index < 0) return;
    const tile_work w = work_down<ROWS, M::COLS>(p, once, index);
    if (w.steps == 0) continue;
    m.rows.await_empty();
    if (lane == 0) bring_two<DIM>(m.rows, maps.a_rows, maps.b_rows, ROWS, w.first, w.head, w.batch);
    m.rows.next();
    for (once_steps steps(p, w); steps.more(); steps.next()) {
      const int col = w.begin + steps.at * M::COLS, h = w.head * steps.heads + steps.head;
      m.cols.await_empty();
      if (lane == 0) bring_two<DIM>(m.cols, maps.a_cols, maps.b_cols, M::COLS, col, h, w.batch);
      load_stats<M::COLS>(p, m.stats_at(m.cols.stage), ((int64_t)w.batch * p.q.heads + h) * p.tokens, col);
      mbarrier_arrive(m.cols.full(m.cols.stage));
      m.cols.next();
    }
  }
}

/* Adds every second step's part of dq to the sums when all lower tiles have added theirs, by a lane. */
template <int DIM>
__device__ inline void add_parts(const attention_problem &p, const attention_once &once, once_memory<DIM> &m,
                                 int adder) {
  typedef once_memory<DIM> M;
  unsigned count = 0;
  for (int index = m.next_tile(); index >= 0; index = m.next_tile()) {
    const tile_work w = work_down<ROWS, M::COLS>(p, once, index);
    const int before = w.first / ROWS;
    for (once_steps steps(p, w); steps.more(); steps.next(), ++count) {
      if (count % ADDERS != (unsigned)adder || threadIdx.x % WARP != 0) continue;
      const int64_t place =
          place_of<M::COLS>(p, w.batch, w.head * steps.heads + steps.head, w.begin / M::COLS + steps.at);
      int *const turn = once.turns + 1 + place;
      await_turn(turn, before);
#pragma unroll
      for (int g = 0; g < GROUPS; ++g) {
        mbarrier_wait(m.part_full(count, g), m.parity(count));
        bulk_add(once.sums + place * ATTENTION_ONCE_PART + g * GROUP_PART, m.part(count, g), before == 0);
      }
      bulk_are_read<1>();
      mbarrier_arrive(m.part_taken(count, 0));
      bulk_are_read<0>();
      mbarrier_arrive(m.part_taken(count, 1));
      bulk_are_done();
      end_turn(turn, before + 1);
    }
    __syncwarp();
  }
}

/* A warpgroup's part of dq, of step `count`: its product, and what is done when it has ended. */
template <class T, int DIM>
__device__ inline void start_part(const once_memory<DIM> &m, int group, unsigned count, wgmma_block<64> &part) {
  mbarrier_wait(m.slopes_full(count), m.parity(count));
  start_queries<T>(part, wgmma_operand(m.slopes(count) + (DIM == 64 ? group * ROWS * ROW_BYTES : 0), 0),
                   wgmma_operand(m.at + (DIM == 128 ? group * ROWS * ROW_BYTES : 0), 0));
}
template <int DIM>
__device__ inline void give_part(const once_memory<DIM> &m, const lane_place_of &lane, int group, unsigned count,
                                 const wgmma_block<64> &part) {
  typedef once_memory<DIM> M;
  const bool leads = threadIdx.x % WARP == 0;
  if (leads) mbarrier_arrive(m.slopes_empty(count));
  if (count >= M::SLOTS) mbarrier_wait(m.part_taken(count - M::SLOTS, group), m.parity(count - M::SLOTS));
  store_part(m.part(count, group), lane, part);
  wgmma_sees_shared();
  __syncwarp();
  if (leads) mbarrier_arrive(m.part_full(count, group));
}

/* A step's weights and slopes, and their products; FIRST of a tile: without the part of dq of the step before. */
template <class T, int DIM, bool FIRST>
__device__ inline void differentiate_step(once_memory<DIM> &m, const lane_place_of &lane, float scale,
                                          const step_mask<once_memory<DIM>::COLS> &mask, int group, unsigned count,
                                          int step, uint64_t keys, wgmma_block<DIM> &dk, wgmma_block<DIM> &dv) {
  typedef once_memory<DIM> M;
  enum { COLS = M::COLS };
  unsigned weights[COLS / 16][4], slopes[COLS / 16][4];
  m.cols.await_full();
  const unsigned cols = agreed(m.cols.at()), stats = m.stats_at(m.cols.stage);
  wgmma_block<COLS> s, d;
  col_stats<COLS> lse, delta;
  start_scores<T, DIM, ROWS>(s, keys, wgmma_operand(cols, 0));
  start_scores<T, DIM, ROWS>(d, operand_on(keys, M::ROWS_BYTES), wgmma_operand(cols + M::COLS_BYTES, 0));
  wgmma_wait<1>();
  wgmma_keep(s);
  lse.load(stats, lane);
  weigh_step<true>(lane, scale, mask, step, row_stats(), lse, s);
  wgmma_wait<0>();
  wgmma_keep(d);
  delta.load(stats + 4 * COLS, lane);
  pack_step<T>(s, weights);
  slope_step<T, true>(row_stats(), delta, s, d, slopes);
  mbarrier_wait(m.slopes_empty(count), m.parity(count) ^ 1);
  store_slopes<COLS>(m.slopes(count), lane, group, slopes);
  wgmma_sees_shared();
  __syncwarp();
  if (threadIdx.x % WARP == 0) mbarrier_arrive(m.slopes_full(count));
  if (FIRST) {
    start_sums<T, DIM>(dv, weights, wgmma_operand(cols + M::COLS_BYTES, COLS * ROW_BYTES));
    start_sums<T, DIM>(dk, slopes, wgmma_operand(cols, COLS * ROW_BYTES));
    wgmma_wait<0>();
  } else {
    wgmma_block<64> part;
    start_part<T>(m, group, count - 1, part);
    start_sums<T, DIM>(dv, weights, wgmma_operand(cols + M::COLS_BYTES, COLS * ROW_BYTES));
    start_sums<T, DIM>(dk, slopes, wgmma_operand(cols, COLS * ROW_BYTES));
    wgmma_wait<2>();
    wgmma_keep(part);
    give_part(m, lane, group, count - 1, part);
    wgmma_wait<0>();
  }
  wgmma_keep(dk);
  wgmma_keep(dv);
  m.cols.release_all();
}

template <class T, int DIM>
__device__ inline void differentiate_tiles(const attention_problem &p, const attention_once &once, once_memory<DIM> &m,
                                           int group) {
  typedef once_memory<DIM> M;
  enum { COLS = M::COLS };
  const lane_place_of lane;
  const float scale = p.scale * 1.44269504f;
  unsigned count = 0; /* steps */
  for (int index = m.next_tile(); index >= 0; index = m.next_tile()) {
    const tile_work w = work_down<ROWS, COLS>(p, once, index);
    const int row0 = w.first + group * GROUP_ROWS;
    wgmma_block<DIM> dk = {}, dv = {};
    if (w.steps > 0) {
      const step_mask<COLS> mask(w, row0, (int)p.tokens);
      const uint64_t keys = wgmma_operand(m.at + group * GROUP_ROWS * ROW_BYTES, 0);
      m.rows.await_full();
      once_steps steps(p, w);
      differentiate_step<T, DIM, true>(m, lane, scale, mask, group, count, steps.at, keys, dk, dv);
      ++count;
#pragma unroll 1
      for (steps.next(); steps.more(); steps.next(), ++count)
        differentiate_step<T, DIM, false>(m, lane, scale, mask, group, count, steps.at, keys, dk, dv);
      wgmma_block<64> part;
      start_part<T>(m, group, count - 1, part);
      wgmma_wait<0>();
      wgmma_keep(part);
      m.rows.release();
      give_part(m, lane, group, count - 1, part);
    }
    finish_rows<T, DIM, true>(p, w, lane, row0, w.count - group * GROUP_ROWS, dk, false);
    finish_rows<T, DIM, true>(p, w, lane, row0, w.count - group * GROUP_ROWS, dv, true);
  }
}

template <class T, int DIM>
__device__ inline void differentiate_all(const attention_problem &p, const attention_once &once,
                                         const attention_bwd_maps &maps) {
  once_memory<DIM> m(shared_begin());
  if (threadIdx.x == 0) {
    m.init();
    mbarriers_are_made();
  }
  __syncthreads();
  await_kernel();
  next_kernel_may_begin();
  const int role = warpgroup_index();
  if (role == 0) {
    registers_fewer<24>();
    const int warp = __shfl_sync(0xffffffffu, (int)threadIdx.x / WARP, 0);
    if (warp == LOADER)
      bring_tiles<DIM>(p, once, maps, m);
    else if (warp < ADDER + ADDERS)
      add_parts<DIM>(p, once, m, warp - ADDER);
  } else {
    registers_more<240>();
    differentiate_tiles<T, DIM>(p, once, m, role - 1);
  }
}

/* dq of a step's queries of a head, a block each: by eights of columns. */
template <class T, int DIM>
__device__ inline void finish_queries(const attention_problem &p, const attention_once &once) {
  enum { COLS = ATTENTION_ONCE_COLS(DIM), EIGHTS = DIM / 8, EACH = COLS * EIGHTS / ATTENTION_ONCE_THREADS };
  const int steps = (int)((p.tokens + COLS - 1) / COLS), heads = (int)p.q.heads;
  int index = (int)blockIdx.x, h, step; /* in the order of dq's memory */
  if (p.dq.head_pitch < p.dq.token_pitch)
    h = index % heads, index /= heads, step = index % steps, index /= steps;
  else
    step = index % steps, index /= steps, h = index % heads, index /= heads;
  const int64_t place = place_of<COLS>(p, index, h, step);
  const float *const from = once.sums + place * ATTENTION_ONCE_PART;
  const head<T> to = head_of<T>(p.dq, index, h, p.head_dim);
  const int row0 = step * COLS, count = min(COLS, (int)p.tokens - row0);
  /* The n-th eight of a row. A warpgroup's part is half of the columns, or of the queries. */
  const auto sums_of = [&](int row, int n) {
    return from + (n / 8 + row / GROUP_ROWS) * GROUP_PART + (n % 8 * GROUP_ROWS + row % GROUP_ROWS) * 8;
  };
  await_kernel();
  const bool any = once.turns[1 + place] > 0;
  float v[EACH][8], bad = 0;
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int u = i * ATTENTION_ONCE_THREADS + (int)threadIdx.x;
    const float4 *const at = (const float4 *)sums_of(u / EIGHTS, u % EIGHTS);
    const float4 a = at[0], b = at[1];
    v[i][0] = a.x, v[i][1] = a.y, v[i][2] = a.z, v[i][3] = a.w, v[i][4] = b.x, v[i][5] = b.y, v[i][6] = b.z,
    v[i][7] = b.w;
  }
#pragma unroll
  for (int i = 0; i < EACH; ++i) {
    const int u = i * ATTENTION_ONCE_THREADS + (int)threadIdx.x, row = u / EIGHTS, column = u % EIGHTS * 8;
    float z[8];
#pragma unroll
    for (int e = 0; e < 8; ++e) z[e] = any ? v[i][e] * p.scale : 0, bad = fmaf(z[e], 0, bad);
    if (row < count && column < to.width) store_pack(to.data + (row0 + row) * to.pitch + column, packed<T>(z));
  }
  if (!__syncthreads_or(bad != 0)) return; /* NaN, where a number is not finite */
  tile_work w;
  place_tile<false, COLS, ROWS>(p, index * heads + h, step, 1, &w);
  for (int row = (int)threadIdx.x / WARP; row < count; row += ATTENTION_ONCE_THREADS / WARP) {
    bool fine = true;
    for (int c = (int)threadIdx.x % WARP; c < DIM; c += WARP)
      fine = fine && fabsf(sums_of(row, c / 8)[c % 8]) < INFINITY;
    if (!__all_sync(0xffffffffu, fine))
      differentiate_row<T, DIM, false>(p, w, row0 + row, false, p.scale * 1.44269504f);
  }
}
#else /* nothing launches these */
#include "cuda/kernel/element.cuh"
typedef tigon_attention_bwd_problem attention_problem;
template <class T, int DIM>
__device__ inline void differentiate_all(const attention_problem &, const attention_once &,
                                         const attention_bwd_maps &) {}
template <class T, int DIM> __device__ inline void finish_queries(const attention_problem &, const attention_once &) {}
#endif

#define KERNEL(name, T, dim)                                                                                        \
  extern "C" __global__ void __launch_bounds__(ATTENTION_WGMMA_BWD_THREADS, 1)                                      \
      attention_once_wgmma_##name(const __grid_constant__ attention_problem p, const attention_once once,           \
                                  const __grid_constant__ attention_bwd_maps maps) {                                \
    differentiate_all<T, dim>(p, once, maps);                                                                       \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(ATTENTION_ONCE_THREADS)                                              \
      attention_once_wgmma_queries_##name(const __grid_constant__ attention_problem p, const attention_once once) { \
    finish_queries<T, dim>(p, once);                                                                                \
  }
KERNEL(64_f16, f16, 64)
KERNEL(64_bf16, bf16, 64)
KERNEL(128_f16, f16, 128)
KERNEL(128_bf16, bf16, 128)
