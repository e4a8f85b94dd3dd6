/* What the kernels that order slots share. */
#ifndef TIGON_CUDA_KERNEL_MOE_ORDER_CUH
#define TIGON_CUDA_KERNEL_MOE_ORDER_CUH

#include "cuda/kernel/moe_rows.cuh"
#include "cuda/kernel/team.cuh"

/* The sum of v over the lanes up to this one. */
__device__ static inline int lanes_until(int v) {
  const int lane = (int)threadIdx.x % WARP;
#pragma unroll
  for (int d = 1; d < WARP; d *= 2) {
    const int other = __shfl_up_sync(0xffffffffu, v, d);
    if (lane >= d) v += other;
  }
  return v;
}

#endif
