/* The order of fused_moe's slots in one launch: a stable counting sort by a cluster.
 *
 * Blocks of the cluster, their warps and a warp's slots are in the order of the slots. A warp reads its slots once, and ranks each
 * among its own slots of the same expert. Then a block sorts its slots in shared memory, and posts its totals to all blocks. These
 * totals say where an expert's slots begin. So a block's slots of an expert go to neighbouring positions, which are stored together. */
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/moe_order.cuh"

enum {
  AT_ONCE = 8, /* slots of a lane in a round, whose loads are on their way together */
  ROUND = AT_ONCE * WARP,
  LOW_BITS = 20, /* a word's below its expert */
  LOW = (1 << LOW_BITS) - 1,
};
static_assert(MOE_ORDER_SLOTS <= LOW && MOE_ORDER_THREADS <= 1 << (31 - LOW_BITS), "an expert and a slot fit a word");

extern __shared__ int order_words[];

/* A block's shared memory. A column is an expert, and the last one is for slots of no expert. */
struct order_space {
  int *count;  /* [warps, columns] slots of a warp, then the first index in `sorted` that they have */
  int *total;  /* [blocks, columns] slots of each block */
  int *shift;  /* [columns] from an index in `sorted` to a position */
  int *first;  /* [columns] position of the first slot */
  int *tile;   /* [columns] index of the first tile */
  int *sorted; /* [slots of the block] expert << LOW_BITS | slot of the block */

  __device__ explicit order_space(int columns)
      : count(order_words), total(count + MOE_ORDER_WARPS * columns), shift(total + MOE_ORDER_BLOCKS * columns),
        first(shift + columns), tile(first + columns), sorted(tile + columns) {}
};

/* ---- what blocks tell each other ---- */

/* Opens the block's box, an mbarrier, for `bytes`, and says that the block has begun. */
__device__ static inline void open_box(uint64_t &box, int bytes) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) {
    mbarrier_init(shared_address(&box), 1);
    mbarriers_are_made();
    mbarrier_arrive_expect(shared_address(&box), bytes);
  }
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}

/* Until all boxes are open. */
__device__ static inline void await_boxes() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait;" ::: "memory");
#endif
}

/* Stores v at the same place `to` of all blocks. */
__device__ static inline void post(const cluster &c, const uint64_t &box, int *to, int v) {
#if __CUDA_ARCH__ >= 900
  for (int b = 0; b < c.size; ++b) cluster_send(to, v, box, b);
#else
  *to = v;
#endif
}

/* ---- a warp's slots ---- */

/* The experts of a round, of which the lane's first slot is s; -1 from `end` on. */
template <class I> __device__ inline void read_round(const moe_order &o, int s, int end, int (&expert)[AT_ONCE]) {
  I e[AT_ONCE];
#pragma unroll
  for (int k = 0; k < AT_ONCE; ++k) e[k] = s + k * WARP < end ? ((const I *)o.idx)[s + k * WARP] : 0;
#pragma unroll
  for (int k = 0; k < AT_ONCE; ++k)
    expert[k] = s + k * WARP >= end ? -1 : e[k] >= 0 && e[k] < o.experts ? (int)e[k] : o.experts;
}

/* Each expert becomes expert << LOW_BITS | the warp's slots of that expert before this one, and `count` has the round too. */
__device__ static inline void rank_round(int *count, int lane, int (&word)[AT_ONCE]) {
#pragma unroll
  for (int k = 0; k < AT_ONCE; ++k) {
    const int e = word[k];
    const unsigned same = __match_any_sync(0xffffffffu, e);
    const int before = __popc(same & ((1u << lane) - 1)), next = e >= 0 ? count[e] : 0;
    __syncwarp();
    if (e >= 0 && before == 0) count[e] = next + __popc(same);
    __syncwarp();
    if (e >= 0) word[k] = e << LOW_BITS | (next + before);
  }
}

/* Sums of v over the block's threads before this one. */
template <int N> __device__ inline void sums_before(int (&v)[N], int (&space)[N][MOE_ORDER_WARPS]) {
  static_assert(MOE_ORDER_WARPS == WARP, "a lane has a warp's sum");
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int until = lanes_until(v[i]);
    if (lane == WARP - 1) space[i][warp] = until;
    v[i] = until - v[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const int own = space[i][lane];
    v[i] += __shfl_sync(0xffffffffu, lanes_until(own) - own, warp);
  }
}

/* ---- the kernel ---- */

extern "C" __global__ void __launch_bounds__(MOE_ORDER_THREADS) fused_moe_order(const __grid_constant__ moe_order o) {
  __shared__ uint64_t box;
  __shared__ int space[1][MOE_ORDER_WARPS], spaces[2][MOE_ORDER_WARPS];
  const cluster cl = cluster_of_block();
  const int mine = (int)threadIdx.x, lane = mine % WARP, warp = mine / WARP, columns = o.experts + 1;
  const bool has = mine < columns; /* a thread has a column */
  const order_space m(columns);
  const int block_slots = MOE_ORDER_WARPS * o.chunk, block_begin = cl.rank * block_slots;
  const int begin = block_begin + warp * o.chunk, end = min(begin + o.chunk, o.slots);
  int *const count = m.count + warp * columns;
  open_box(box, cl.size * columns * (int)sizeof(int));

  /* Words of the last round stay in registers, and those of rounds before it wait in `position`. */
  for (int e = lane; e < columns; e += WARP) count[e] = 0;
  __syncwarp();
  int word[AT_ONCE], round = begin;
  for (;; round += ROUND) {
    if (o.idx_dtype == TIGON_I64)
      read_round<int64_t>(o, round + lane, end, word);
    else
      read_round<int32_t>(o, round + lane, end, word);
    rank_round(count, lane, word);
    if (round + ROUND >= end) break;
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) o.position[round + k * WARP + lane] = word[k];
  }
  __syncthreads();

  /* Where a warp's slots of an expert begin in `sorted`. */
  int before[MOE_ORDER_WARPS], total = 0;
  if (has) {
#pragma unroll
    for (int w = 0; w < MOE_ORDER_WARPS; ++w) before[w] = m.count[w * columns + mine];
#pragma unroll
    for (int w = 0; w < MOE_ORDER_WARPS; ++w) {
      const int own = before[w];
      before[w] = total, total += own;
    }
  }
  await_boxes();
  if (has) post(cl, box, m.total + cl.rank * columns + mine, total);
  int local[1] = {total};
  sums_before(local, space);
  if (has) {
#pragma unroll
    for (int w = 0; w < MOE_ORDER_WARPS; ++w) m.count[w * columns + mine] = local[0] + before[w];
  }

  /* Where the block's slots of an expert go. */
  await_phase(box, 0);
  int all = 0, blocks_before = 0;
#pragma unroll
  for (int b = 0; b < MOE_ORDER_BLOCKS; ++b) {
    const int of = has && b < cl.size ? m.total[b * columns + mine] : 0;
    all += of, blocks_before += b < cl.rank ? of : 0;
  }
  int firsts[2] = {all, (all + o.tile_rows - 1) / o.tile_rows};
  sums_before(firsts, spaces);
  if (has) {
    m.shift[mine] = firsts[0] + blocks_before - local[0];
    m.first[mine] = firsts[0];
    m.tile[mine] = firsts[1];
    if (cl.rank == 0) o.first[mine] = firsts[0];
    if (cl.rank == 0 && mine == o.experts) {
      o.first[mine + 1] = o.slots;
      *o.tile_count = firsts[1];
    }
  }
  __syncthreads();

  for (;;) {
    int index[AT_ONCE], shift[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      const int e = max(word[k], 0) >> LOW_BITS;
      index[k] = count[e] + (word[k] & LOW), shift[k] = m.shift[e];
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) {
      if (word[k] < 0) continue;
      const int s = round + k * WARP + lane;
      m.sorted[index[k]] = (word[k] & ~LOW) | (s - block_begin);
      o.position[s] = index[k] + shift[k];
    }
    round -= ROUND;
    if (round < begin) break;
#pragma unroll
    for (int k = 0; k < AT_ONCE; ++k) word[k] = o.position[round + k * WARP + lane];
  }

  /* A warp of the cluster has an expert's tiles. */
  for (int e = cl.rank + cl.size * warp; e < o.experts; e += cl.size * MOE_ORDER_WARPS) {
    const int first = m.first[e], rows = m.first[e + 1] - first;
    for (int i = lane; i * o.tile_rows < rows; i += WARP)
      o.tiles[m.tile[e] + i] = moe_tile{e, first + i * o.tile_rows, min(rows - i * o.tile_rows, o.tile_rows), 0};
  }
  __syncthreads();

  const int own_slots = min(o.slots - block_begin, block_slots);
#pragma unroll 4
  for (int i = mine; i < own_slots; i += MOE_ORDER_THREADS) {
    const int of = m.sorted[i], s = block_begin + (of & LOW), position = i + m.shift[of >> LOW_BITS];
    o.slot[position] = s;
    o.token[position] = (unsigned)s / (unsigned)o.top_k;
  }
}
