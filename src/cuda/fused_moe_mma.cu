/* The products of fused_moe on tensor cores from sm_80 on. A block has one tile; its warps have 32 x 64 of it each. */
#include "cuda/kernel/moe_load.cuh"
#include "cuda/kernel/moe_use.cuh"

enum { ROWS = MOE_MMA_ROWS, COLUMNS = MOE_MMA_COLUMNS, STAGES = MOE_MMA_STAGES, WARP_ROWS = 32, WARP_COLUMNS = 64 };
enum { A_BYTES = ROWS * MOE_ROW_BYTES, STAGE_BYTES = A_BYTES + COLUMNS * MOE_ROW_BYTES };
enum { MI = WARP_ROWS / 16, NJ = WARP_COLUMNS / 8, ACROSS = COLUMNS / WARP_COLUMNS };
static_assert(ROWS / WARP_ROWS * ACROSS == MOE_WARPS && STAGES * STAGE_BYTES == MOE_MMA_SHARED, "as it is launched");

/* Where a lane finds the operands of a step in a stage. */
template <bool A_BY_TERM, bool B_BY_TERM> struct operands {
  unsigned a, b; /* bytes from a stage's begin */

  __device__ explicit operands(const moe_place &place) {
    const int lane = (int)threadIdx.x % 32;
    if (A_BY_TERM)
      a = place.row / 64 * MOE_PANEL_BYTES +
          by_pieces(place_of<MOE_DEPTH>(lane % 8 + lane / 16 * 8, lane / 8 % 2), place.row % 64 / 8);
    else
      a = place_of<MOE_DEPTH>(place.row + lane % 16, lane / 16);
    if (B_BY_TERM)
      b = A_BYTES + place.col / 64 * MOE_PANEL_BYTES + place_of<MOE_DEPTH>(lane % 16, lane / 16);
    else
      b = A_BYTES + place_of<MOE_DEPTH>(place.col + lane % 8 + lane / 16 * 8, lane / 8 % 2);
  }

  template <class T> __device__ void multiply(unsigned stage, float (&acc)[MI][NJ][4]) const {
#pragma unroll
    for (int k = 0; k < MOE_DEPTH / 16; ++k) {
      unsigned u[MI][4];
#pragma unroll
      for (int i = 0; i < MI; ++i)
        if (A_BY_TERM)
          ldmatrix_trans(u[i], stage + by_pieces(a, 2 * i) + k * 16 * MOE_ROW_BYTES);
        else
          ldmatrix(u[i], stage + by_pieces(a, 2 * k) + i * 16 * MOE_ROW_BYTES);
#pragma unroll
      for (int j = 0; j < NJ; j += 2) {
        unsigned v[4];
        if (B_BY_TERM)
          ldmatrix_trans(v, stage + by_pieces(b, j) + k * 16 * MOE_ROW_BYTES);
        else
          ldmatrix(v, stage + by_pieces(b, 2 * k) + j * 8 * MOE_ROW_BYTES);
#pragma unroll
        for (int i = 0; i < MI; ++i) mma<T>(acc[i][j], u[i], v[0], v[1]), mma<T>(acc[i][j + 1], u[i], v[2], v[3]);
      }
    }
  }
};

template <class T, int USE, bool BY_TERM> __device__ inline void multiply_tile(const moe_product &q) {
  extern __shared__ __align__(128) char shared[];
  moe_area area;
  if (!moe_area_of<USE, ROWS, COLUMNS>(q, moe_tile_count<USE>(q), (int)blockIdx.x, &area)) return;
  const unsigned stages = (unsigned)__cvta_generic_to_shared(shared);
  const auto stage_of = [&](int step) { return stages + step % STAGES * STAGE_BYTES; };
  const int warp = (int)threadIdx.x / 32, steps = moe_steps<USE>(q, area);
  const moe_place place(warp / ACROSS * WARP_ROWS, warp % ACROSS * WARP_COLUMNS);
  const operands<USE == MOE_WEIGHTS, BY_TERM> of(place);
  moe_sides<T, USE, BY_TERM, ROWS, COLUMNS, MOE_THREADS> sides(q, area, (int)threadIdx.x);
  const moe_needs<MI> needs = moe_need<USE, T, MI, NJ>(q, area, place);
  float acc[MI][NJ][4] = {};
  for (int step = 0; step < STAGES - 1; ++step) {
    if (step < steps) sides.load(q, stage_of(step), stage_of(step) + A_BYTES, step);
    cp_async_commit();
  }
  for (int step = 0; step < steps; ++step) {
    cp_async_wait_for<STAGES - 2>();
    __syncthreads(); /* the stage is there for all, and nobody reads the one before it any more */
    const int ahead = step + STAGES - 1;
    if (ahead < steps) sides.load(q, stage_of(ahead), stage_of(ahead) + A_BYTES, ahead);
    cp_async_commit();
    of.template multiply<T>(stage_of(step), acc);
  }
  moe_use_sums<USE, T, true>(q, area, place, needs, acc);
}

#define KERNEL(name, T, use, by_term)                               \
  extern "C" __global__ void __launch_bounds__(MOE_THREADS)         \
      fused_moe_mma_##name(const __grid_constant__ moe_product q) { \
    multiply_tile<T, use, by_term>(q);                              \
  }
#define KERNELS(name, use, by_term) KERNEL(name##_f16, f16, use, by_term) KERNEL(name##_bf16, bf16, use, by_term)
KERNELS(gate_rows, MOE_GATE, false)
KERNELS(gate_terms, MOE_GATE, true)
KERNELS(store_rows, MOE_STORE, false)
KERNELS(store_terms, MOE_STORE, true)
KERNELS(slopes_rows, MOE_SLOPES, false)
KERNELS(slopes_terms, MOE_SLOPES, true)
KERNELS(weights, MOE_WEIGHTS, true)
