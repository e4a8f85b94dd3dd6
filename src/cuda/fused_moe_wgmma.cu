/* The products of fused_moe on the tensor cores of sm_90a. A block stays for many tiles. One of its three warpgroups brings steps of
 * tiles into shared memory, as far ahead as there are stages; the others multiply, 64 rows of a tile each. */
#include "cuda/fused_moe.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/moe_load.cuh"
#include "cuda/kernel/moe_use.cuh"
#include "cuda/kernel/tma.cuh"

enum { ROWS = MOE_WGMMA_ROWS, COLUMNS = MOE_WGMMA_COLUMNS, STAGES = MOE_WGMMA_STAGES, GROUP = 128 };
enum { A_BYTES = ROWS * MOE_ROW_BYTES, B_BYTES = COLUMNS * MOE_ROW_BYTES, STAGE_BYTES = A_BYTES + B_BYTES };
enum { ALIGNMENT = 1024 };
enum { LOADER_REGISTERS = 72, MULTIPLIER_REGISTERS = 216 };
enum { BARRIER_BYTES = 8, GROUP_ROWS = 64, GROUP_WARPS = GROUP / 32, LOADERS = 1, MULTIPLIERS = 2 };
static_assert(STAGES * STAGE_BYTES + ALIGNMENT + 2 * STAGES * BARRIER_BYTES <= MOE_WGMMA_SHARED, "as it is launched");
static_assert(MOE_WGMMA_THREADS == (LOADERS + MULTIPLIERS) * GROUP && ROWS == MULTIPLIERS * GROUP_ROWS,
              "as it is launched");

/* The stages in turn. A stage is full when its copies have come, and empty when all products of it are done. */
struct pipeline {
  unsigned stages, barriers; /* of full ones, then of empty ones */
  int stage, parity;

  __device__ explicit pipeline(unsigned shared)
      : stages((shared + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT), barriers(stages + STAGES * STAGE_BYTES), stage(0),
        parity(0) {}
  __device__ unsigned full(int at) const { return barriers + at * BARRIER_BYTES; }
  __device__ unsigned empty(int at) const { return barriers + (STAGES + at) * BARRIER_BYTES; }
  __device__ void init(int arrivals) const {
    for (int at = 0; at < STAGES; ++at)
      mbarrier_init(full(at), arrivals), mbarrier_init(empty(at), MULTIPLIERS * GROUP_WARPS);
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
  const bool halves = USE == MOE_GATE && !q.p.interleaved;
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

template <class T, int USE, bool BY_TERM>
__device__ inline void load_tiles(const moe_product &q, const cu_tensor_map &a_map, const cu_tensor_map &b_map,
                                  pipeline &at) {
  const bool first = threadIdx.x == 0;
  moe_area area;
  if (first && (USE == MOE_STORE || (USE == MOE_WEIGHTS && !q.a.of_tokens))) tma_prefetch(a_map);
  if (first && (USE != MOE_WEIGHTS || !q.b.of_tokens)) tma_prefetch(b_map);
  for (int index = (int)blockIdx.x; moe_area_of<USE, ROWS, COLUMNS>(q, index, &area); index += (int)gridDim.x) {
    const int steps = moe_steps<USE>(q, area);
    if constexpr (USE == MOE_WEIGHTS) {
      moe_slot_terms<T, ROWS, LOADERS * GROUP> a(q, q.a, area, area.row, (int)q.m, (int)threadIdx.x);
      moe_slot_terms<T, COLUMNS, LOADERS * GROUP> b(q, q.b, area, area.col, (int)q.n, (int)threadIdx.x);
      for (int step = 0; step < steps; ++step, at.next()) {
        const int term = step * MOE_DEPTH;
        /* a box would have the next expert's terms, too */
        const bool last = area.end - area.begin - term < MOE_DEPTH;
        const bool a_box = !q.a.of_tokens && !last, b_box = !q.b.of_tokens && !last;
        mbarrier_wait(at.empty(at.stage), at.parity ^ 1); /* at first all are */
        if (first) {
          mbarrier_arrive_expect(at.full(at.stage), (a_box ? A_BYTES : 0) + (b_box ? B_BYTES : 0));
          if (a_box) load_panels<ROWS>(at.a(), a_map, at.full(at.stage), area.row, area.begin + term);
          if (b_box) load_panels<COLUMNS>(at.b(), b_map, at.full(at.stage), area.col, area.begin + term);
        }
        if (!a_box) a.load(q, at.a(), term);
        if (!b_box) b.load(q, at.b(), term);
        mbarrier_arrive_copied(at.full(at.stage));
      }
    } else if constexpr (USE == MOE_STORE) {
      for (int step = 0; first && step < steps; ++step, at.next()) {
        mbarrier_wait(at.empty(at.stage), at.parity ^ 1);
        mbarrier_arrive_expect(at.full(at.stage), STAGE_BYTES);
        load_weights<USE, BY_TERM>(q, area, at, b_map, step * MOE_DEPTH);
        tma_load(at.a(), a_map, at.full(at.stage), step * MOE_DEPTH, area.row);
      }
    } else {
      moe_slot_rows<T, ROWS, LOADERS * GROUP> a(q, area, (int)threadIdx.x);
      for (int step = 0; step < steps; ++step, at.next()) {
        mbarrier_wait(at.empty(at.stage), at.parity ^ 1);
        if (first) {
          mbarrier_arrive_expect(at.full(at.stage), B_BYTES);
          load_weights<USE, BY_TERM>(q, area, at, b_map, step * MOE_DEPTH);
        }
        a.load(q, at.a(), step * MOE_DEPTH);
        mbarrier_arrive_copied(at.full(at.stage));
      }
    }
  }
}

/* The products of a step of the warpgroup's rows. */
template <class T, bool A_BY_TERM, bool B_BY_TERM>
__device__ inline void multiply_step(wgmma_sums &sums, unsigned a, unsigned b) {
  enum { NEXT_A = A_BY_TERM ? 16 * MOE_ROW_BYTES : 32, NEXT_B = B_BY_TERM ? 16 * MOE_ROW_BYTES : 32 };
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < MOE_DEPTH / 16; ++k)
    wgmma<T, A_BY_TERM, B_BY_TERM>(sums, wgmma_operand(a + k * NEXT_A, MOE_PANEL_BYTES),
                                   wgmma_operand(b + k * NEXT_B, MOE_PANEL_BYTES));
  wgmma_commit();
}

template <class T, int USE, bool BY_TERM> __device__ inline void multiply_tiles(const moe_product &q, pipeline &at) {
  const int group = (int)threadIdx.x / GROUP - LOADERS, warp = (int)threadIdx.x / 32 % GROUP_WARPS;
  const bool first_lane = threadIdx.x % 32 == 0;
  const moe_place place(group * GROUP_ROWS + warp * 16, 0);
  moe_area area;
  for (int index = (int)blockIdx.x; moe_area_of<USE, ROWS, COLUMNS>(q, index, &area); index += (int)gridDim.x) {
    const int steps = moe_steps<USE>(q, area);
    float acc[1][COLUMNS / 8][4] = {};
    if (area.rows > group * GROUP_ROWS) {
      const moe_needs<1> needs = moe_need<USE, T, 1, COLUMNS / 8>(q, area, place);
      for (int step = 0; step < steps; ++step) {
        mbarrier_wait(at.full(at.stage), at.parity);
        if (gathers<USE>::ANY) wgmma_sees_shared();
        multiply_step<T, USE == MOE_WEIGHTS, BY_TERM>(acc[0], at.a() + group * GROUP_ROWS * MOE_ROW_BYTES, at.b());
        wgmma_wait<1>();
        if (first_lane && step > 0) mbarrier_arrive(at.empty((at.stage + STAGES - 1) % STAGES));
        at.next();
      }
      wgmma_wait<0>();
      wgmma_keep(acc[0]);
      if (first_lane && steps > 0) mbarrier_arrive(at.empty((at.stage + STAGES - 1) % STAGES));
      moe_use_sums<USE, T, true, true>(q, area, place, needs, acc);
    } else {
      for (int step = 0; step < steps; ++step, at.next()) {
        mbarrier_wait(at.full(at.stage), at.parity);
        if (first_lane) mbarrier_arrive(at.empty(at.stage));
      }
    }
  }
}

template <class T, int USE, bool BY_TERM>
__device__ inline void multiply_all(const moe_product &q, const cu_tensor_map &a_map, const cu_tensor_map &b_map) {
  extern __shared__ char shared[];
  pipeline at((unsigned)__cvta_generic_to_shared(shared));
  if (threadIdx.x == 0) at.init(gathers<USE>::ARRIVALS);
  __syncthreads();
  if (threadIdx.x < LOADERS * GROUP) {
    registers_fewer<LOADER_REGISTERS>();
    load_tiles<T, USE, BY_TERM>(q, a_map, b_map, at);
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

#define KERNEL(name, T, use, by_term)                                                                 \
  extern "C" __global__ void __launch_bounds__(MOE_WGMMA_THREADS, 1)                                  \
      fused_moe_wgmma_##name(const __grid_constant__ moe_product q, const __grid_constant__ cu_tensor_map a, \
                             const __grid_constant__ cu_tensor_map b) {                               \
    multiply_all<T, use, by_term>(q, a, b);                                                           \
  }
#define KERNELS(name, use, by_term) KERNEL(name##_f16, f16, use, by_term) KERNEL(name##_bf16, bf16, use, by_term)
KERNELS(gate_rows, MOE_GATE, false)
KERNELS(gate_terms, MOE_GATE, true)
KERNELS(store_rows, MOE_STORE, false)
KERNELS(store_terms, MOE_STORE, true)
KERNELS(slopes_rows, MOE_SLOPES, false)
KERNELS(slopes_terms, MOE_SLOPES, true)
KERNELS(weights, MOE_WEIGHTS, true)
