/* The products of fused_moe on the tensor cores of sm_90a. A block stays for many tiles. One of its three warpgroups brings steps of
 * tiles into shared memory, as far ahead as there are stages; the others multiply, 64 rows of a tile each. */
#include "cuda/fused_moe.h"

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/kernel/moe_load.cuh"
#include "cuda/kernel/moe_use.cuh"
#include "cuda/kernel/wgmma.cuh"

enum { ROWS = MOE_WGMMA_ROWS, COLUMNS = MOE_WGMMA_COLUMNS, STAGES = MOE_WGMMA_STAGES, GROUP = 128 };
enum { A_BYTES = ROWS * MOE_ROW_BYTES, STAGE_BYTES = A_BYTES + COLUMNS * MOE_ROW_BYTES, ALIGNMENT = 1024 };
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
  __device__ void init() const {
    for (int at = 0; at < STAGES; ++at)
      mbarrier_init(full(at), LOADERS * GROUP), mbarrier_init(empty(at), MULTIPLIERS * GROUP_WARPS);
  }
  __device__ unsigned a() const { return stages + stage * STAGE_BYTES; }
  __device__ unsigned b() const { return a() + A_BYTES; }
  __device__ void next() {
    stage = stage + 1 == STAGES ? 0 : stage + 1;
    parity ^= stage == 0;
  }
};

template <class T, int USE, bool BY_TERM> __device__ inline void load_tiles(const moe_product &q, pipeline &at) {
  moe_area area;
  for (int index = (int)blockIdx.x; moe_area_of<USE, ROWS, COLUMNS>(q, index, &area); index += (int)gridDim.x) {
    const int steps = moe_steps<USE>(q, area);
    moe_sides<T, USE, BY_TERM, ROWS, COLUMNS, LOADERS * GROUP> sides(q, area, (int)threadIdx.x);
    for (int step = 0; step < steps; ++step, at.next()) {
      mbarrier_wait(at.empty(at.stage), at.parity ^ 1); /* at first all are */
      sides.load(q, at.a(), at.b(), step);
      mbarrier_arrive_copied(at.full(at.stage));
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
        wgmma_sees_shared();
        multiply_step<T, USE == MOE_WEIGHTS, BY_TERM>(acc[0], at.a() + group * GROUP_ROWS * MOE_ROW_BYTES, at.b());
        wgmma_wait<1>();
        if (first_lane && step > 0) mbarrier_arrive(at.empty((at.stage + STAGES - 1) % STAGES));
        at.next();
      }
      wgmma_wait<0>();
      wgmma_keep(acc[0]);
      if (first_lane && steps > 0) mbarrier_arrive(at.empty((at.stage + STAGES - 1) % STAGES));
      moe_use_sums<USE, T, true>(q, area, place, needs, acc);
    } else {
      for (int step = 0; step < steps; ++step, at.next()) {
        mbarrier_wait(at.full(at.stage), at.parity);
        if (first_lane) mbarrier_arrive(at.empty(at.stage));
      }
    }
  }
}

template <class T, int USE, bool BY_TERM> __device__ inline void multiply_all(const moe_product &q) {
  extern __shared__ char shared[];
  pipeline at((unsigned)__cvta_generic_to_shared(shared));
  if (threadIdx.x == 0) at.init();
  __syncthreads();
  if (threadIdx.x < LOADERS * GROUP) {
    registers_fewer<LOADER_REGISTERS>();
    load_tiles<T, USE, BY_TERM>(q, at);
  } else {
    registers_more<MULTIPLIER_REGISTERS>();
    multiply_tiles<T, USE, BY_TERM>(q, at);
  }
}
#else /* nothing launches these */
#include "cuda/kernel/element.cuh"
template <class T, int USE, bool BY_TERM> __device__ inline void multiply_all(const moe_product &) {}
#endif

#define KERNEL(name, T, use, by_term)                                 \
  extern "C" __global__ void __launch_bounds__(MOE_WGMMA_THREADS, 1)  \
      fused_moe_wgmma_##name(const __grid_constant__ moe_product q) { \
    multiply_all<T, use, by_term>(q);                                 \
  }
#define KERNELS(name, use, by_term) KERNEL(name##_f16, f16, use, by_term) KERNEL(name##_bf16, bf16, use, by_term)
KERNELS(gate_rows, MOE_GATE, false)
KERNELS(gate_terms, MOE_GATE, true)
KERNELS(store_rows, MOE_STORE, false)
KERNELS(store_terms, MOE_STORE, true)
KERNELS(slopes_rows, MOE_SLOPES, false)
KERNELS(slopes_terms, MOE_SLOPES, true)
KERNELS(weights, MOE_WEIGHTS, true)
