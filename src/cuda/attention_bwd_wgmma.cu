/* attention, backward, of 16-bit dtypes and heads of up to 128 on sm_90a: the walk of attention_bwd.cu through wgmma. A block stays for many
 * tiles of rows. One of its warpgroups brings rows, and the other side's columns step by step; the others have 64 rows each, whose
 * gradients stay in registers. p and dz / scale are rounded to the dtype, operand A of their products as they lie in registers. */
#include "cuda/attention.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/attention_bwd_wgmma.cuh"

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
};

/* Two tiles, as one stage. */
template <int DIM, int STAGES>
__device__ inline void bring_two(const ring<STAGES> &to, const cu_tensor_map &a, const cu_tensor_map &b, int rows,
                                 int row, int head, int batch) {
  mbarrier_arrive_expect(to.full(to.stage), 2 * rows * DIM * 2);
#pragma unroll
  for (int c = 0; c < DIM / 64; ++c) {
    tma_load(to.at() + c * rows * ROW_BYTES, a, to.full(to.stage), 64 * c, row, head, batch);
    tma_load(to.at() + (rows * DIM * 2) + c * rows * ROW_BYTES, b, to.full(to.stage), 64 * c, row, head, batch);
  }
}

/* By a warp, which besides loads what a stage's queries bring along. A step of queries is one of all heads of a group, in turn. */
template <int DIM, bool OF_KEYS>
__device__ inline void bring_tiles(const attention_problem &p, const attention_turns &turns,
                                   const attention_bwd_maps &maps, memory<DIM, OF_KEYS> &m) {
  typedef bwd_shapes<DIM, OF_KEYS> S;
  const int lane = (int)threadIdx.x;
  const int group = (int)(p.q.heads / p.k.heads);
  tile_work w;
  for (int round = 0; round < turns.rounds; ++round) {
    if (!work_of<OF_KEYS, S::ROWS, S::COLS>(p, turns, round, &w) || w.steps == 0) continue;
    m.rows.await_empty();
    if (lane == 0) bring_two<DIM>(m.rows, maps.a_rows, maps.b_rows, S::ROWS, w.first, w.head, w.batch);
    m.rows.next();
    const int h0 = OF_KEYS ? w.head * group : key_head(p, w.head), h1 = h0 + (OF_KEYS ? group : 1);
    for (int i = 0; i < w.steps; ++i)
      for (int h = h0; h < h1; ++h) {
        const int col = w.begin + w.step(i) * S::COLS;
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
                                           memory<DIM, OF_KEYS> &m, int group) {
  typedef bwd_shapes<DIM, OF_KEYS> S;
  const lane_place_of lane;
  const float scale = p.scale * 1.44269504f;
  const int heads = OF_KEYS ? (int)(p.q.heads / p.k.heads) : 1;
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
      for (int i = 0, at = 0; at < w.steps; i = i + 1 == heads ? 0 : i + 1, at += i == 0) {
        const int step = w.step(at);
        wgmma_block<S::COLS> s, d;
        unsigned weights[S::COLS / 16][4], slopes[S::COLS / 16][4];
        m.cols.await_full();
        const unsigned cols = m.cols.at();
        start_scores<T, DIM, S::ROWS>(s, a, wgmma_operand(cols, 0));
        start_scores<T, DIM, S::ROWS>(d, operand_on(a, S::ROWS_BYTES), wgmma_operand(cols + S::COLS_BYTES, 0));
        wgmma_wait<0>();
        wgmma_keep(s);
        wgmma_keep(d);
        differentiate_step<T, OF_KEYS>(lane, scale, mask, step, stats, m.stats_at(m.cols.stage), s, d, weights, slopes);
        start_sums<T, DIM>(da, slopes, wgmma_operand(cols, S::COLS * ROW_BYTES));
        if (OF_KEYS) start_sums<T, DIM>(db, weights, wgmma_operand(cols + S::COLS_BYTES, S::COLS * ROW_BYTES));
        wgmma_wait<0>();
        wgmma_keep(da);
        if (OF_KEYS) wgmma_keep(db);
        m.cols.release();
      }
      m.rows.release();
    }
    const float by[2] = {p.scale, p.scale}, ones[2] = {1, 1};
    store_rows<T, DIM>(lane, head_of<T>(OF_KEYS ? p.dk : p.dq, w.batch, w.head, p.head_dim), row0, count, da, by);
    if (OF_KEYS) store_rows<T, DIM>(lane, head_of<T>(p.dv, w.batch, w.head, p.head_dim), row0, count, db, ones);
    mend_rows<T, DIM, OF_KEYS>(p, w, lane, row0, count, da, db, scale);
  }
}

template <class T, int DIM, bool OF_KEYS>
__device__ inline void differentiate_all(const attention_problem &p, const attention_turns &turns,
                                         const attention_bwd_maps &maps) {
  memory<DIM, OF_KEYS> m(shared_begin());
  if (threadIdx.x == 0) {
    m.rows.init(1, ATTENTION_WGMMA_BWD_GROUPS * GROUP_WARPS);
    m.cols.init(OF_KEYS ? 1 + WARP : 1, ATTENTION_WGMMA_BWD_GROUPS * GROUP_WARPS);
    mbarriers_are_made();
  }
  __syncthreads();
  const int role = warpgroup_index();
  if (role == 0) {
    registers_fewer<24>();
    if (threadIdx.x < WARP) bring_tiles<DIM, OF_KEYS>(p, turns, maps, m);
  } else {
    registers_more<240>();
    differentiate_tiles<T, DIM, OF_KEYS>(p, turns, m, role - 1);
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
