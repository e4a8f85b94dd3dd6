/* What attention's backward in one walk shares: how tiles are handed out, and the sums of dq that blocks add to in the order of their tiles. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_ONCE_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_ONCE_CUH

#include "cuda/kernel/attention_bwd_wgmma.cuh"

/* ---- tiles ---- */

/* A tile of keys and its queries in whole steps. All go down from the last one, so that lower tiles come first to each. */
template <int ROWS, int COLS>
__device__ inline tile_work work_down(const attention_problem &p, const attention_once &once, int index) {
  tile_work w;
  const int before = index / (once.section * once.tiles) * once.section, at = index - before * once.tiles,
            heads = min(once.section, once.heads - before), head = before + at % heads;
  place_tile<true, ROWS, COLS>(p, head, at / heads, COLS, &w);
  w.upwards = false;
  return w;
}

/* Steps of a tile, from the last one down, for all heads of a group in turn. */
struct once_steps {
  int heads, head, at;
  __device__ once_steps(const attention_problem &p, const tile_work &w)
      : heads((int)(p.q.heads / p.k.heads)), head(0), at(w.steps - 1) {}
  __device__ bool more() const { return at >= 0; }
  __device__ void next() {
    head = head + 1 == heads ? 0 : head + 1;
    at -= head == 0;
  }
};

/* ---- shared memory ---- */

enum { ROWS = ATTENTION_WGMMA_BWD_ROWS, GROUPS = ATTENTION_WGMMA_BWD_GROUPS };
enum { LOADER, ADDER, ADDERS = 2 }; /* warps of the first warpgroup */
/* The part of dq that a warpgroup makes in a step: 64 x 64 numbers. */
enum { GROUP_PART = ATTENTION_ONCE_PART / GROUPS, GROUP_PART_BYTES = GROUP_PART * 4 };

/* Steps are counted from a block's first one on. What a step has by its count, the next one has in another place. */
template <int DIM> struct once_memory {
  enum {
    COLS = ATTENTION_ONCE_COLS(DIM),
    STAGES = ATTENTION_ONCE_STAGES(DIM),
    SLOTS = ATTENTION_ONCE_SLOTS(DIM),
    ROWS_BYTES = ROWS * DIM * 2,
    COLS_BYTES = COLS * DIM * 2,
    SLOPES_BYTES = ROWS * COLS * 2,
    OF_SLOPES = 2 * ROWS_BYTES + 2 * STAGES * COLS_BYTES,
    OF_PARTS = OF_SLOPES + 2 * SLOPES_BYTES,
    OF_STATS = OF_PARTS + SLOTS * GROUPS * GROUP_PART_BYTES,
    OF_BARRIERS = OF_STATS + STAGES * COLS * 8,
    OF_INDEX = OF_BARRIERS + 240,
  };
  unsigned at;
  ring<1> rows;      /* keys, then values */
  ring<STAGES> cols; /* queries, then do */
  ring<1> tiles;     /* the index of the block's next tile, or -1 */

  __device__ explicit once_memory(unsigned at_)
      : at(at_), rows(at, 2 * ROWS_BYTES, at + OF_BARRIERS),
        cols(at + 2 * ROWS_BYTES, 2 * COLS_BYTES, rows.barriers + 2 * BARRIER_BYTES),
        tiles(at + OF_INDEX, 4, cols.barriers + 2 * STAGES * BARRIER_BYTES) {}
  __device__ unsigned stats_at(int stage) const { return at + OF_STATS + stage * COLS * 8; }
  __device__ unsigned barrier(int index) const { return at + OF_BARRIERS + (4 + 2 * STAGES + index) * BARRIER_BYTES; }
  __device__ static int parity(unsigned count) { return count / 2 & 1; }
  __device__ unsigned slopes(unsigned count) const { return at + OF_SLOPES + count % 2 * SLOPES_BYTES; }
  __device__ unsigned slopes_full(unsigned count) const { return barrier(count % 2); }
  __device__ unsigned slopes_empty(unsigned count) const { return barrier(2 + count % 2); }
  /* A warpgroup's part of dq. */
  __device__ unsigned part(unsigned count, int group) const {
    return at + OF_PARTS + (count % SLOTS * GROUPS + group) * GROUP_PART_BYTES;
  }
  __device__ unsigned part_full(unsigned count, int group) const { return barrier(4 + 2 * group + count % 2); }
  __device__ unsigned part_taken(unsigned count, int group) const { return barrier(8 + 2 * group + count % 2); }
  __device__ void init() const {
    rows.init(1, GROUPS * GROUP_WARPS);
    cols.init(1 + WARP, GROUPS * GROUP);
    tiles.init(1, GROUPS * GROUP_WARPS + ADDERS);
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(slopes_full(i), GROUPS * GROUP_WARPS), mbarrier_init(slopes_empty(i), GROUPS * GROUP_WARPS);
      for (int g = 0; g < GROUPS; ++g) mbarrier_init(part_full(i, g), GROUP_WARPS), mbarrier_init(part_taken(i, g), 1);
    }
  }
  /* By a warp that is not the loader. */
  __device__ int next_tile() {
    int index = 0;
    tiles.await_full();
    if (threadIdx.x % WARP == 0)
      asm volatile("ld.shared::cta.s32 %0, [%1];" : "=r"(index) : "r"(tiles.data) : "memory");
    tiles.release();
    return __shfl_sync(0xffffffffu, index, 0);
  }
};

/* ---- dq ---- */

/* A step's queries of a head, among those of all heads. */
template <int COLS> __device__ inline int64_t place_of(const attention_problem &p, int batch, int head, int step) {
  return ((int64_t)batch * p.q.heads + head) * ((p.tokens + COLS - 1) / COLS) + step;
}
/* Until so many tiles have been added. What they wrote comes before what the bulk copy engine does after this. */
__device__ static inline void await_turn(const int *turn, int count) {
  int now;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
  while (now != count);
  asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ static inline void end_turn(int *turn, int count) {
  asm volatile("fence.proxy.async;" ::: "memory");
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(turn), "r"(count) : "memory");
}

/* By one thread. `first`: nothing is there yet. */
__device__ static inline void bulk_add(float *to, unsigned from, bool first) {
  if (first)
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"((int)GROUP_PART_BYTES)
                 : "memory");
  else
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"((int)GROUP_PART_BYTES)
                 : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* All but the last PENDING have been read; all are where they belong. */
template <int PENDING> __device__ inline void bulk_are_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(PENDING) : "memory");
}
__device__ static inline void bulk_are_done() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

/* ---- slopes in shared memory ---- */

/* A warpgroup's slopes, 64 keys by COLS queries, as rows of 64 queries that wgmma reads by terms. */
template <int COLS>
__device__ inline void store_slopes(unsigned to, const lane_place_of &lane, int group,
                                    const unsigned (&slopes)[COLS / 16][4]) {
  const int at = (int)threadIdx.x % WARP, row = group * GROUP_ROWS + lane.first + at % 16;
#pragma unroll
  for (int k = 0; k < COLS / 16; ++k) {
    const int unit = k % 4 * 2 + at / 16;
    const unsigned here = to + k / 4 * ATTENTION_WGMMA_BWD_ROWS * ROW_BYTES + row * ROW_BYTES + (unit ^ row % 8) * 16;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(here), "r"(slopes[k][0]),
                 "r"(slopes[k][1]), "r"(slopes[k][2]), "r"(slopes[k][3])
                 : "memory");
  }
}

/* part = slopes^T keys of 64 queries and 64 columns, over the block's keys. */
template <class T> __device__ inline void start_queries(wgmma_block<64> &part, uint64_t slopes, uint64_t keys) {
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < ATTENTION_WGMMA_BWD_ROWS / 16; ++k)
    wgmma_both_terms<T>(part, operand_on(slopes, k * 16 * ROW_BYTES), operand_on(keys, k * 16 * ROW_BYTES), k > 0);
  wgmma_commit();
}

/* Eight columns of a row lie together: as eights of columns, then rows. */
__device__ static inline void store_part(unsigned to, const lane_place_of &lane, const wgmma_block<64> &part) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i)
      asm volatile(
          "st.shared::cta.v2.f32 [%0], {%1, %2};" ::"r"(to + ((j * GROUP_ROWS + lane.row(i)) * 8 + 2 * lane.t) * 4),
          "f"(part.of[j][2 * i]), "f"(part.of[j][2 * i + 1])
          : "memory");
}

#endif
