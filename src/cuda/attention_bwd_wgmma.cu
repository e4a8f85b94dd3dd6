/* attention, backward, of 16-bit dtypes and heads of up to 128 on sm_90a: the walk of attention_bwd.cu through wgmma. A block stays for many
 * tiles of rows. One of its warpgroups brings rows, and the other side's columns step by step; the others have 64 rows each, whose
 * gradients stay in registers. p and dz / scale are rounded to the dtype, operand A of their products as they lie in registers.
 *
 * Where tiles of keys are few, two blocks, a cluster, have half of a tile's steps each. */
#include "cuda/attention.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/attention_bwd_wgmma.cuh"
#include "cuda/kernel/attention_pair.cuh"
#include "cuda/kernel/overlap.cuh"

template <int DIM, bool OF_KEYS> struct memory {
  typedef bwd_shapes<DIM, OF_KEYS> S;
  ring<1> rows;         /* a, then b */
  ring<S::STAGES> cols; /* the same */
  unsigned stats;       /* statistics of a stage's columns: lse in base 2, then delta */

  __device__ explicit memory(unsigned at)
      : rows(at, 2 * S::ROWS_BYTES, at + 2 * S::ROWS_BYTES + 2 * S::STAGES * S::COLS_BYTES + S::STAGES * S::COLS * 8),
        cols(at + 2 * S::ROWS_BYTES, 2 * S::COLS_BYTES, rows.barriers + 2 * BARRIER_BYTES),
        stats(cols.data + 2 * S::STAGES * S::COLS_BYTES) {}
  __device__ unsigned stats_at(int stage) const { return stats + stage * S::COLS * 8; }
  __device__ sums_mail<DIM> mail(int rank) const {
    const unsigned barriers = rows.barriers + 2 * (1 + S::STAGES) * BARRIER_BYTES;
    return sums_mail<DIM>(rows.barriers + BARRIERS_BYTES, barriers, rank);
  }
};

/* The steps of a block, of all heads of a group: heads of a step are in turn. */
struct step_range {
  int heads, left; /* steps to come */
  int at, head;    /* the next one, and its head in the group */

  template <bool OF_KEYS>
  static __device__ step_range of(const attention_problem &p, const tile_work &w, int rank, int parts) {
    const int heads = OF_KEYS ? (int)(p.q.heads / p.k.heads) : 1, all = w.steps * heads,
              each = (all + parts - 1) / parts;
    const int first = rank * each;
    return step_range{heads, min(each, all - first), first / heads, first % heads};
  }
  __device__ void next() {
    head = head + 1 == heads ? 0 : head + 1;
    at += head == 0;
    --left;
  }
};

/* By a warp, which besides loads what a stage's queries bring along. */
template <int DIM, bool OF_KEYS>
__device__ inline void bring_tiles(const attention_problem &p, const attention_turns &turns,
                                   const attention_bwd_maps &maps, memory<DIM, OF_KEYS> &m, int rank) {
  typedef bwd_shapes<DIM, OF_KEYS> S;
  const int lane = (int)threadIdx.x;
  tile_work w;
  for (int round = 0; round < turns.rounds; ++round) {
    if (!work_of<OF_KEYS, S::ROWS, S::COLS>(p, turns, round, &w) || w.steps == 0) continue;
    m.rows.await_empty();
    if (lane == 0) bring_two<DIM>(m.rows, maps.a_rows, maps.b_rows, S::ROWS, w.first, w.head, w.batch);
    m.rows.next();
    const int head0 = OF_KEYS ? w.head * (int)(p.q.heads / p.k.heads) : key_head(p, w.head);
    for (step_range steps = step_range::of<OF_KEYS>(p, w, rank, turns.parts); steps.left > 0; steps.next()) {
      const int col = w.begin + w.step(steps.at) * S::COLS, h = head0 + steps.head;
      m.cols.await_empty();
      if (lane == 0) bring_two<DIM>(m.cols, maps.a_cols, maps.b_cols, S::COLS, col, h, w.batch);
      if (OF_KEYS) {
        load_stats<S::COLS>(p, m.stats_at(m.cols.stage), ((int64_t)w.batch * p.q.heads + h) * p.tokens, col);
        mbarrier_arrive(m.cols.full(m.cols.stage));
      }
      m.cols.next();
    }
  }
}

template <class T, int DIM, bool OF_KEYS>
__device__ inline void differentiate_tiles(const attention_problem &p, const attention_turns &turns,
                                           memory<DIM, OF_KEYS> &m, int group, int rank) {
  typedef bwd_shapes<DIM, OF_KEYS> S;
  const lane_place_of lane;
  const float scale = p.scale * 1.44269504f;
  sums_mail<DIM> mail = m.mail(rank);
  tile_work w;
  for (int round = 0; round < turns.rounds; ++round) {
    if (!work_of<OF_KEYS, S::ROWS, S::COLS>(p, turns, round, &w)) continue;
    const int row0 = w.first + group * GROUP_ROWS, count = w.count - group * GROUP_ROWS;
    const step_mask<S::COLS> mask(w, row0, (int)(OF_KEYS ? p.tokens : p.keys));
    wgmma_block<DIM> da = {}, db = {}; /* dk and dv, or dq and nothing */
    if (w.steps > 0) {
      const uint64_t a = wgmma_operand(m.rows.at() + group * GROUP_ROWS * ROW_BYTES, 0);
      row_stats stats;
      if (!OF_KEYS) stats = stats_of_rows(p, lane, ((int64_t)w.batch * p.q.heads + w.head) * p.tokens, row0);
      m.rows.await_full();
#pragma unroll 1
      for (step_range steps = step_range::of<OF_KEYS>(p, w, rank, turns.parts); steps.left > 0; steps.next()) {
        const int step = w.step(steps.at);
        wgmma_block<S::COLS> s, d;
        unsigned weights[S::COLS / 16][4], slopes[S::COLS / 16][4];
        m.cols.await_full();
        const unsigned cols = m.cols.at();
        start_scores<T, DIM, S::ROWS>(s, a, wgmma_operand(cols, 0));
        start_scores<T, DIM, S::ROWS>(d, operand_on(a, S::ROWS_BYTES), wgmma_operand(cols + S::COLS_BYTES, 0));
        col_stats<S::COLS> lse, delta;
        if (OF_KEYS) lse.load(m.stats_at(m.cols.stage), lane);
        wgmma_wait<1>();
        wgmma_keep(s);
        weigh_step<OF_KEYS>(lane, scale, mask, step, stats, lse, s);
        if (OF_KEYS) delta.load(m.stats_at(m.cols.stage) + 4 * S::COLS, lane);
        wgmma_wait<0>();
        wgmma_keep(d);
        if (OF_KEYS) pack_step<T>(s, weights);
        slope_step<T, OF_KEYS>(stats, delta, s, d, slopes);
        start_sums<T, DIM>(da, slopes, wgmma_operand(cols, S::COLS * ROW_BYTES));
        if (OF_KEYS) start_sums<T, DIM>(db, weights, wgmma_operand(cols + S::COLS_BYTES, S::COLS * ROW_BYTES));
        wgmma_wait<0>();
        wgmma_keep(da);
        if (OF_KEYS) wgmma_keep(db);
        OF_KEYS ? m.cols.release_all() : m.cols.release();
      }
      m.rows.release();
    }
    bool of_b = false;
    if (OF_KEYS && turns.parts > 1) {
      of_b = rank == 1;
      if (of_b) {
        mail.exchange(da, db);
        da = db;
      } else {
        mail.exchange(db, da);
      }
    }
    finish_rows<T, DIM, OF_KEYS>(p, w, lane, row0, count, da, of_b);
    if (OF_KEYS && turns.parts == 1) finish_rows<T, DIM, OF_KEYS>(p, w, lane, row0, count, db, true);
  }
}

template <class T, int DIM, bool OF_KEYS>
__device__ inline void differentiate_all(const attention_problem &p, const attention_turns &turns,
                                         const attention_bwd_maps &maps) {
  memory<DIM, OF_KEYS> m(shared_begin());
  const int rank = OF_KEYS ? (int)blockIdx.x % turns.parts : 0;
  if (threadIdx.x == 0) {
    m.rows.init(1, ATTENTION_WGMMA_BWD_GROUPS * GROUP_WARPS);
    m.cols.init(OF_KEYS ? 1 + WARP : 1, ATTENTION_WGMMA_BWD_GROUPS * (OF_KEYS ? GROUP : GROUP_WARPS));
    if (OF_KEYS) m.mail(rank).init();
    mbarriers_are_made();
  }
  if (OF_KEYS)
    cluster_arrive_and_wait();
  else
    __syncthreads();
  if (OF_KEYS) { /* the sums, with which dq's kernel begins, too */
    await_kernel();
    next_kernel_may_begin();
  }
  const int role = warpgroup_index();
  if (role == 0) {
    registers_fewer<24>();
    if (threadIdx.x < WARP) bring_tiles<DIM, OF_KEYS>(p, turns, maps, m, rank);
  } else {
    registers_more<240>();
    differentiate_tiles<T, DIM, OF_KEYS>(p, turns, m, role - 1, rank);
  }
  if (OF_KEYS) { /* no block ends while the other one writes to it */
    __syncwarp();
    cluster_arrive_and_wait();
  } else {
    await_kernel(); /* whoever waits for this one waits for dk and dv */
  }
}
#else /* nothing launches these */
#include "cuda/kernel/element.cuh"
typedef tigon_attention_bwd_problem attention_problem;
template <class T, int DIM, bool OF_KEYS>
__device__ inline void differentiate_all(const attention_problem &, const attention_turns &,
                                         const attention_bwd_maps &) {}
#endif

#define KERNEL(name, T, dim, of_keys)                                                                      \
  extern "C" __global__ void __launch_bounds__(ATTENTION_WGMMA_BWD_THREADS, 1)                             \
      attention_bwd_wgmma_##name(const __grid_constant__ attention_problem p, const attention_turns turns, \
                                 const __grid_constant__ attention_bwd_maps maps) {                        \
    differentiate_all<T, dim, of_keys>(p, turns, maps);                                                    \
  }
#define KERNELS(name, dim, of_keys) KERNEL(name##_f16, f16, dim, of_keys) KERNEL(name##_bf16, bf16, dim, of_keys)
KERNELS(keys_64, 64, true)
KERNELS(keys_128, 128, true)
KERNELS(queries_64, 64, false)
KERNELS(queries_128, 128, false)
