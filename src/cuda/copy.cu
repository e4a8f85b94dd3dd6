#include "cuda/copy.h"
#include "cuda/kernel/element.cuh"

/* A block's part of `count` elements. */
template <typename T> __device__ __forceinline__ void copy_part(T *to, const T *from, int64_t count, int64_t part) {
  const int64_t first = part * COPY_THREADS * COPY_EACH + threadIdx.x;
  T held[COPY_EACH];
#pragma unroll
  for (int k = 0; k < COPY_EACH; ++k)
    if (first + k * COPY_THREADS < count) held[k] = from[first + k * COPY_THREADS];
#pragma unroll
  for (int k = 0; k < COPY_EACH; ++k)
    if (first + k * COPY_THREADS < count) to[first + k * COPY_THREADS] = held[k];
}

extern "C" __global__ void __launch_bounds__(COPY_THREADS) copy(uint4 *to, const uint4 *from, int64_t packs) {
  copy_part(to, from, packs, blockIdx.x);
}

template <typename T> __device__ __forceinline__ void copy_row_part(const copy_rows &p) {
  const int64_t row = blockIdx.x / p.parts;
  copy_part((T *)(p.to + row * p.to_pitch), (const T *)(p.from + row * p.from_pitch), p.bytes / (int64_t)sizeof(T),
            blockIdx.x % p.parts);
}
extern "C" __global__ void __launch_bounds__(COPY_THREADS) copy_rows_wide(copy_rows p) { copy_row_part<uint4>(p); }
extern "C" __global__ void __launch_bounds__(COPY_THREADS) copy_rows_any(copy_rows p) { copy_row_part<uint16_t>(p); }

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
