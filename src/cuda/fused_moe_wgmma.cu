/* The products of fused_moe on the tensor cores of sm_90a. A block stays for many tiles. One of its four warpgroups loads steps
 * of tiles into shared memory, as far ahead as there are stages. Two multiply, 64 rows of a tile each. The last one stores a
 * tile's results during the next tile. */
#include "cuda/fused_moe.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/moe_load.cuh"
#include "cuda/kernel/moe_staged.cuh"
#include "cuda/kernel/tma.cuh"

enum { ROWS = MOE_WGMMA_ROWS, COLUMNS = MOE_WGMMA_COLUMNS, STAGES = MOE_WGMMA_STAGES, GROUP = 128 };
enum { A_BYTES = ROWS * MOE_ROW_BYTES, B_BYTES = COLUMNS * MOE_ROW_BYTES, STAGE_BYTES = A_BYTES + B_BYTES };
enum { ALIGNMENT = 1024, HALVES = 2 };
enum { BARRIER_BYTES = 8, GROUP_ROWS = 64, GROUP_WARPS = GROUP / 32, LOADERS = 1, MULTIPLIERS = 2, STORERS = 1 };
enum { STAGED_BYTES = GROUP_ROWS * MOE_WGMMA_STAGED, BARRIERS = 2 * (STAGES + MULTIPLIERS) };
static_assert(STAGES * STAGE_BYTES + MULTIPLIERS * STAGED_BYTES + ALIGNMENT + BARRIERS * BARRIER_BYTES <=
                  MOE_WGMMA_SHARED,
              "as it is launched");
static_assert(MOE_WGMMA_THREADS == (LOADERS + MULTIPLIERS + STORERS) * GROUP && ROWS == MULTIPLIERS * GROUP_ROWS,
              "as it is launched");
/* Registers of a thread: of the loader and the storer, and of those that multiply. */
enum { HELPER_REGISTERS = 80, MULTIPLIER_REGISTERS = 176 };
static_assert((LOADERS + STORERS) * HELPER_REGISTERS + MULTIPLIERS * MULTIPLIER_REGISTERS <= 65536 / GROUP,
              "a block's");

/* The stages in turn. A stage is full when its copies have come, and empty when all products of it are done. */
struct pipeline {
  unsigned stages, barriers; /* barriers of full stages, then of empty ones; the same for staged results */
  int stage, parity;

  __device__ explicit pipeline(unsigned shared)
      : stages((shared + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT), barriers(staged(MULTIPLIERS)), stage(0), parity(0) {}
  /* The results of a warpgroup. They are there when its warps have come, and the room is free when the storer's have. */
  __device__ unsigned staged(int group) const { return stages + STAGES * STAGE_BYTES + group * STAGED_BYTES; }
  __device__ unsigned is_staged(int group) const { return barriers + (2 * STAGES + group) * BARRIER_BYTES; }
  __device__ unsigned is_stored(int group) const { return is_staged(MULTIPLIERS + group); }
  __device__ unsigned full(int at) const { return barriers + at * BARRIER_BYTES; }
  __device__ unsigned empty(int at) const { return barriers + (STAGES + at) * BARRIER_BYTES; }
  __device__ void init(int arrivals) const {
    for (int at = 0; at < STAGES; ++at)
      mbarrier_init(full(at), arrivals), mbarrier_init(empty(at), MULTIPLIERS * GROUP_WARPS);
    for (int group = 0; group < MULTIPLIERS; ++group)
      mbarrier_init(is_staged(group), GROUP_WARPS), mbarrier_init(is_stored(group), STORERS * GROUP_WARPS);
    mbarriers_are_made();
  }
  __device__ unsigned a() const { return stages + stage * STAGE_BYTES; }
  __device__ unsigned b() const { return a() + A_BYTES; }
  __device__ void next() {
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

/* Columns of slots' rows, by terms: boxes of 64 of each. */
template <int EXTENT>
__device__ inline void load_panels(unsigned to, const cu_tensor_map &map, unsigned full, int column, int position) {
  for (int p = 0; p < EXTENT / MOE_DEPTH; ++p)
    tma_load(to + p * MOE_PANEL_BYTES, map, full, column + p * MOE_DEPTH, position);
}

/* The tile's columns of the expert's matrix. A gate's and up's halves have a half of the tile each. */
template <int USE, bool BY_TERM>
__device__ inline void load_weights(const moe_product &q, const moe_area &area, const pipeline &at,
                                    const cu_tensor_map &map, int term) {
  enum { HALF = COLUMNS / 2, WIDTH = BY_TERM ? MOE_DEPTH : HALF };
  const bool halves = moe_halves<USE>(q);
  const int first = halves ? area.col / 2 : area.col, second = halves ? (int)q.p.inner + first : first + HALF;
  for (int c = 0; c < COLUMNS; c += WIDTH) {
    const unsigned to = at.b() + c * MOE_ROW_BYTES;
    const int column = c < HALF ? first + c : second + c - HALF;
    if (BY_TERM)
      tma_load(to, map, at.full(at.stage), column, term, area.expert);
    else
      tma_load(to, map, at.full(at.stage), term, column, area.expert);
  }
}

/* Which sides are rows of tokens, gathered by all threads of the warpgroup; its first thread brings the others as boxes. */
template <int USE> struct gathers {
  static constexpr bool ANY = USE != MOE_STORE;
  static constexpr int ARRIVALS = 1 + (ANY ? LOADERS * GROUP : 0);
};

/* MOE_WEIGHTS: one side is gathered, A or else B. */
template <class T, bool GATHERS_A>
__device__ inline void load_terms(const moe_product &q, const cu_tensor_map &map, pipeline &at) {
  enum { GATHERED = GATHERS_A ? ROWS : COLUMNS, OTHER = GATHERS_A ? COLUMNS : ROWS, THREADS = LOADERS * GROUP };
  typedef moe_slot_terms<T, GATHERED, THREADS> terms;
  const int rank = (int)threadIdx.x, extent = (int)(GATHERS_A ? q.m : q.n), other_extent = (int)(GATHERS_A ? q.n : q.m);
  const moe_rows &from = GATHERS_A ? q.a : q.b, &others = GATHERS_A ? q.b : q.a;
  moe_walk<MOE_WEIGHTS, ROWS, COLUMNS> walk(q);
  moe_area area;
  if (rank == 0) tma_prefetch(map);
  typename terms::found next = terms::look_up(q, from, walk.next, rank);
  while (walk.take(q, &area)) {
    const int steps = moe_steps<MOE_WEIGHTS>(q, area), other = GATHERS_A ? area.col : area.row;
    terms gathered(q, from, area, GATHERS_A ? area.row : area.col, extent, rank, next);
    for (int step = 0; step < steps; ++step, at.next()) {
      const int term = step * MOE_DEPTH;
      const bool last = area.end - area.begin - term < MOE_DEPTH; /* a box would have the next expert's terms, too */
      const unsigned full = at.full(at.stage), to = GATHERS_A ? at.a() : at.b(), to_other = GATHERS_A ? at.b() : at.a();
      mbarrier_wait(at.empty(at.stage), at.parity ^ 1); /* at first all are */
      if (rank == 0) {
        mbarrier_arrive_expect(full, last ? 0 : OTHER * MOE_ROW_BYTES);
        if (!last) load_panels<OTHER>(to_other, map, full, other, area.begin + term);
      }
      gathered.load(q, to, term);
      if (last) moe_load_last_terms<T, OTHER, THREADS>(others, area, other, other_extent, rank, to_other, term);
      mbarrier_arrive_copied(full);
      if (step == 0) next = terms::look_up(q, from, walk.next, rank);
    }
    if (steps == 0) next = terms::look_up(q, from, walk.next, rank);
  }
}

/* Both sides come as boxes. */
template <int USE, bool BY_TERM>
__device__ inline void load_boxes(const moe_product &q, const cu_tensor_map &a_map, const cu_tensor_map &b_map,
                                  pipeline &at) {
  moe_walk<USE, ROWS, COLUMNS> walk(q);
  moe_area area;
  tma_prefetch(a_map), tma_prefetch(b_map);
  while (walk.take(q, &area)) {
    const int steps = moe_steps<USE>(q, area);
    for (int step = 0; step < steps; ++step, at.next()) {
      mbarrier_wait(at.empty(at.stage), at.parity ^ 1);
      mbarrier_arrive_expect(at.full(at.stage), STAGE_BYTES);
      load_weights<USE, BY_TERM>(q, area, at, b_map, step * MOE_DEPTH);
      tma_load(at.a(), a_map, at.full(at.stage), step * MOE_DEPTH, area.row);
    }
  }
}

/* A is gathered. */
template <class T, int USE, bool BY_TERM>
__device__ inline void load_rows(const moe_product &q, const cu_tensor_map &map, pipeline &at) {
  typedef moe_slot_rows<T, ROWS, LOADERS * GROUP> slots;
  const int rank = (int)threadIdx.x;
  moe_walk<USE, ROWS, COLUMNS> walk(q);
  moe_area area;
  if (rank == 0) tma_prefetch(map);
  typename slots::found next = slots::look_up(q, walk.next, rank);
  while (walk.take(q, &area)) {
    const int steps = moe_steps<USE>(q, area);
    const slots a(q, area, rank, next);
    for (int step = 0; step < steps; ++step, at.next()) {
      mbarrier_wait(at.empty(at.stage), at.parity ^ 1);
      if (rank == 0) {
        mbarrier_arrive_expect(at.full(at.stage), B_BYTES);
        load_weights<USE, BY_TERM>(q, area, at, map, step * MOE_DEPTH);
      }
      a.load(q, at.a(), step * MOE_DEPTH);
      mbarrier_arrive_copied(at.full(at.stage));
      if (step == 0) next = slots::look_up(q, walk.next, rank);
    }
  }
}

template <class T, int USE, bool BY_TERM>
__device__ inline void load_tiles(const moe_product &q, const cu_tensor_map &a_map, const cu_tensor_map &b_map,
                                  pipeline &at) {
  if constexpr (USE == MOE_STORE) {
    if (threadIdx.x == 0) load_boxes<USE, BY_TERM>(q, a_map, b_map, at);
  } else if constexpr (USE == MOE_WEIGHTS) {
    if (q.a.of_tokens)
      load_terms<T, true>(q, b_map, at);
    else
      load_terms<T, false>(q, a_map, at);
  } else {
    load_rows<T, USE, BY_TERM>(q, b_map, at);
  }
}

/* The products of a step of the warpgroup's rows, with each half of the columns. */
template <class T, bool A_BY_TERM, bool B_BY_TERM>
__device__ inline void multiply_step(wgmma_sums (&sums)[HALVES], unsigned a, unsigned b) {
  enum { NEXT_A = A_BY_TERM ? 16 * MOE_ROW_BYTES : 32, NEXT_B = B_BY_TERM ? 16 * MOE_ROW_BYTES : 32 };
  const uint64_t of_a = wgmma_operand(agreed(a), MOE_PANEL_BYTES), of_b = wgmma_operand(agreed(b), MOE_PANEL_BYTES);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < MOE_DEPTH / 16; ++k)
#pragma unroll
    for (int half = 0; half < HALVES; ++half)
      wgmma<T, A_BY_TERM, B_BY_TERM>(sums[half], operand_on(of_a, k * NEXT_A),
                                     operand_on(of_b, half * (B_BYTES / HALVES) + k * NEXT_B));
  wgmma_commit();
}

template <class T, int USE, bool BY_TERM> __device__ inline void multiply_tiles(const moe_product &q, pipeline &at) {
  const int group = (int)threadIdx.x / GROUP - LOADERS - STORERS, warp = (int)threadIdx.x / 32 % GROUP_WARPS;
  const bool first_lane = threadIdx.x % 32 == 0, stages = moe_is_staged<USE>(q);
  const moe_place place(group * GROUP_ROWS + warp * 16, 0);
  const unsigned staged = at.staged(group) + warp * 16 * (USE == MOE_SLOPES ? MOE_STAGED_F32_PITCH : MOE_STAGED_PITCH);
  int staged_parity = 0;
  moe_walk<USE, ROWS, COLUMNS> walk(q);
  moe_area area;
  while (walk.take(q, &area)) {
    const int steps = moe_steps<USE>(q, area);
    if (area.rows > group * GROUP_ROWS) {
      const moe_needs<1> needs = moe_need<USE, T, 1, COLUMNS / 8>(q, area, place);
      wgmma_sums acc[HALVES] = {};
      float(&all)[1][COLUMNS / 8][4] = (float(&)[1][COLUMNS / 8][4]) acc;
      for (int step = 0; step < steps; ++step) {
        mbarrier_wait(at.full(at.stage), at.parity);
        if (gathers<USE>::ANY) wgmma_sees_shared();
        multiply_step<T, USE == MOE_WEIGHTS, BY_TERM>(acc, at.a() + group * GROUP_ROWS * MOE_ROW_BYTES, at.b());
        wgmma_wait<0>(); /* the other warpgroup's products go on */
        if (first_lane) mbarrier_arrive(at.empty(at.stage));
        at.next();
      }
      wgmma_keep(acc[0]), wgmma_keep(acc[1]);
      if (stages) {
        mbarrier_wait(at.is_stored(group), staged_parity ^ 1);
        if constexpr (USE == MOE_SLOPES)
          moe_stage_f32(place, acc[1], staged);
        else
          moe_stage<USE, T>(q, area, place.t, needs, all[0], staged);
        __syncwarp();
        if (first_lane) mbarrier_arrive(at.is_staged(group));
        staged_parity ^= 1;
      }
      if constexpr (USE == MOE_SLOPES)
        moe_use_slopes<T, true>(q, area, place, needs, (const float(&)[1][COLUMNS / 8 / HALVES][4]) acc);
      else if (!stages)
        moe_use_sums<USE, T, true>(q, area, place, needs, all);
    } else {
      for (int step = 0; step < steps; ++step, at.next()) {
        mbarrier_wait(at.full(at.stage), at.parity);
        if (first_lane) mbarrier_arrive(at.empty(at.stage));
      }
    }
  }
}

template <class T, int USE> __device__ inline void store_tiles(const moe_product &q, const pipeline &at) {
  const int rank = (int)threadIdx.x % GROUP;
  int parity[MULTIPLIERS] = {};
  moe_walk<USE, ROWS, COLUMNS> walk(q);
  moe_area area;
  if (!moe_is_staged<USE>(q)) return;
  while (walk.take(q, &area))
#pragma unroll
    for (int group = 0; group < MULTIPLIERS; ++group) {
      if (area.rows <= group * GROUP_ROWS) break;
      mbarrier_wait(at.is_staged(group), parity[group]);
      moe_put_staged<USE, T, GROUP_ROWS, GROUP>(q, area, group * GROUP_ROWS, at.staged(group), rank);
      __syncwarp();
      if (rank % 32 == 0) mbarrier_arrive(at.is_stored(group));
      parity[group] ^= 1;
    }
}

template <class T, int USE, bool BY_TERM>
__device__ inline void multiply_all(const moe_product &q, const cu_tensor_map &a_map, const cu_tensor_map &b_map) {
  extern __shared__ char shared[];
  pipeline at((unsigned)__cvta_generic_to_shared(shared));
  if (threadIdx.x == 0) at.init(gathers<USE>::ARRIVALS);
  __syncthreads();
  if (threadIdx.x < (LOADERS + STORERS) * GROUP) {
    registers_fewer<HELPER_REGISTERS>();
    if (threadIdx.x < LOADERS * GROUP)
      load_tiles<T, USE, BY_TERM>(q, a_map, b_map, at);
    else
      store_tiles<T, USE>(q, at);
  } else {
    registers_more<MULTIPLIER_REGISTERS>();
    multiply_tiles<T, USE, BY_TERM>(q, at);
  }
}
#else /* nothing launches these */
#include "cuda/driver.h"
#include "cuda/kernel/element.cuh"
template <class T, int USE, bool BY_TERM>
__device__ inline void multiply_all(const moe_product &, const cu_tensor_map &, const cu_tensor_map &) {}
#endif

#define KERNEL(name, T, use, by_term)                                                                        \
  extern "C" __global__ void __launch_bounds__(MOE_WGMMA_THREADS, 1)                                         \
      fused_moe_wgmma_##name(const __grid_constant__ moe_product q, const __grid_constant__ cu_tensor_map a, \
                             const __grid_constant__ cu_tensor_map b) {                                      \
    multiply_all<T, use, by_term>(q, a, b);                                                                  \
  }
#define KERNELS(name, use, by_term) KERNEL(name##_f16, f16, use, by_term) KERNEL(name##_bf16, bf16, use, by_term)
KERNELS(gate_rows, MOE_GATE, false)
KERNELS(gate_terms, MOE_GATE, true)
KERNELS(store_rows, MOE_STORE, false)
KERNELS(store_terms, MOE_STORE, true)
KERNELS(slopes_rows, MOE_SLOPES, false)
KERNELS(slopes_terms, MOE_SLOPES, true)
KERNELS(weights, MOE_WEIGHTS, true)
