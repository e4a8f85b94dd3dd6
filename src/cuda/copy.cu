#include "cuda/copy.h"
#include "cuda/kernel/element.cuh"

extern "C" __global__ void __launch_bounds__(COPY_THREADS) copy(uint4 *to, const uint4 *from, int64_t packs) {
  const int64_t first = (int64_t)blockIdx.x * COPY_THREADS * COPY_EACH + threadIdx.x;
  uint4 held[COPY_EACH];
#pragma unroll
  for (int k = 0; k < COPY_EACH; ++k)
    if (first + k * COPY_THREADS < packs) held[k] = from[first + k * COPY_THREADS];
#pragma unroll
  for (int k = 0; k < COPY_EACH; ++k)
    if (first + k * COPY_THREADS < packs) to[first + k * COPY_THREADS] = held[k];
}

/* Leaves what it read in the L2. The store keeps the compiler from dropping the reads; hardly any memory has what it waits for. */
extern "C" __global__ void __launch_bounds__(COPY_THREADS) copy_read(unsigned *sink, const uint4 *from, int64_t packs) {
  const int64_t first = (int64_t)blockIdx.x * COPY_THREADS * COPY_EACH + threadIdx.x;
  uint4 held[COPY_EACH];
#pragma unroll
  for (int k = 0; k < COPY_EACH; ++k)
    held[k] = first + k * COPY_THREADS < packs ? from[first + k * COPY_THREADS] : make_uint4(0, 0, 0, 0);
  unsigned all = ~0u;
#pragma unroll
  for (int k = 0; k < COPY_EACH; ++k) all &= held[k].x & held[k].y & held[k].z & held[k].w;
  if (all == 0xfffffffeu) *sink = all;
}
