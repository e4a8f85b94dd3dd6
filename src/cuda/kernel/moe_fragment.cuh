/* A warp's sums, in the layout of mma and wgmma: blocks of 16 rows x 8 columns. Of lane 4 g + t, block (i, j) has the rows 16 i + g
 * and 16 i + g + 8, and their columns 8 j + 2 t and 8 j + 2 t + 1.
 *
 * Rows go to memory, and come from there, by four blocks of columns. WIDE: T has 16 bits, and rows and their lengths are whole
 * packs. A lane then moves one whole block of a row. */
#ifndef TIGON_CUDA_KERNEL_MOE_FRAGMENT_CUH
#define TIGON_CUDA_KERNEL_MOE_FRAGMENT_CUH

#include "cuda/kernel/mma.cuh"

/* A warp's place in a tile. */
struct moe_place {
  int row, col; /* place of its first block */
  int g, t;

  __device__ moe_place(int row_, int col_)
      : row(row_), col(col_), g((int)threadIdx.x % 32 / 4), t((int)threadIdx.x % 4) {}
};

/* Lane t of four has word t of the blocks 0 to 3, and gets the words 0 to 3 of block t; and back. */
__device__ static inline void moe_exchange(unsigned (&v)[4], int t) {
  const bool odd = t & 1, high = t & 2;
#pragma unroll
  for (int q = 0; q < 4; q += 2) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, odd ? v[q] : v[q + 1], 1);
    if (odd)
      v[q] = other;
    else
      v[q + 1] = other;
  }
#pragma unroll
  for (int q = 0; q < 2; ++q) {
    const unsigned other = __shfl_xor_sync(0xffffffffu, high ? v[q] : v[q + 2], 2);
    if (high)
      v[q] = other;
    else
      v[q + 2] = other;
  }
}

/* row[c] = v of the columns c = col + 8 q + 2 t + e < end. */
template <class T, bool WIDE>
__device__ inline void moe_put(T *row, bool there, int col, int end, int t, const float (&v)[4][2]) {
  if constexpr (WIDE) {
    unsigned words[4];
#pragma unroll
    for (int q = 0; q < 4; ++q) words[q] = packed_two<T>(v[q][0], v[q][1]);
    moe_exchange(words, t);
    if (there && col + 8 * t < end) store_16_bytes(row + col + 8 * t, uint4{words[0], words[1], words[2], words[3]});
  } else {
#pragma unroll
    for (int q = 0; q < 4; ++q)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int c = col + 8 * q + 2 * t + e;
        if (there && c < end) row[c] = from_f32<T>(v[q][e]);
      }
  }
}

/* v = these columns of the row, one by one; 0 beyond its end. */
template <class T> __device__ inline void moe_get(const T *row, bool there, int col, int end, int t, float (&v)[4][2]) {
#pragma unroll
  for (int q = 0; q < 4; ++q)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int c = col + 8 * q + 2 * t + e;
      v[q][e] = there && c < end ? to_f32(row[c]) : 0;
    }
}

/* WIDE in two steps: the load, and what waits for it. */
template <class T> __device__ inline uint4 moe_fetch(const T *row, bool there, int col, int end, int t) {
  return there && col + 8 * t < end ? *(const uint4 *)(row + col + 8 * t) : uint4{0, 0, 0, 0};
}
template <class T> __device__ inline void moe_spread(const uint4 &bits, int t, float (&v)[4][2]) {
  unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
  moe_exchange(words, t);
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const float2 two = unpacked_two<T>(words[q]);
    v[q][0] = two.x, v[q][1] = two.y;
  }
}

/* a and b by turns: a of column c is row[2 c], b the next one. */
template <class T, bool WIDE>
__device__ inline void moe_put_turns(T *row, bool there, int col, int end, int t, const float (&a)[4][2],
                                     const float (&b)[4][2]) {
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int c = col + 8 * q + 2 * t;
    if constexpr (WIDE) {
      if (there && c < end)
        *(uint2 *)(row + 2 * c) = uint2{packed_two<T>(a[q][0], b[q][0]), packed_two<T>(a[q][1], b[q][1])};
    } else {
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (there && c + e < end) row[2 * (c + e)] = from_f32<T>(a[q][e]), row[2 * (c + e) + 1] = from_f32<T>(b[q][e]);
    }
  }
}
template <class T>
__device__ inline void moe_get_turns(const T *row, bool there, int col, int end, int t, float (&a)[4][2],
                                     float (&b)[4][2]) {
#pragma unroll
  for (int q = 0; q < 4; ++q)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int c = col + 8 * q + 2 * t + e;
      const bool is = there && c < end;
      a[q][e] = is ? to_f32(row[2 * c]) : 0, b[q][e] = is ? to_f32(row[2 * c + 1]) : 0;
    }
}
template <class T>
__device__ inline void moe_fetch_turns(const T *row, bool there, int col, int end, int t, uint4 (&to)[2]) {
  uint2 bits[4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    const int c = col + 8 * q + 2 * t;
    bits[q] = there && c < end ? *(const uint2 *)(row + 2 * c) : uint2{0, 0};
  }
  to[0] = uint4{bits[0].x, bits[0].y, bits[1].x, bits[1].y}, to[1] = uint4{bits[2].x, bits[2].y, bits[3].x, bits[3].y};
}
template <class T> __device__ inline void moe_spread_turns(const uint4 (&bits)[2], float (&a)[4][2], float (&b)[4][2]) {
  const unsigned words[4][2] = {
      {bits[0].x, bits[0].y}, {bits[0].z, bits[0].w}, {bits[1].x, bits[1].y}, {bits[1].z, bits[1].w}};
#pragma unroll
  for (int q = 0; q < 4; ++q)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float2 two = unpacked_two<T>(words[q][e]);
      a[q][e] = two.x, b[q][e] = two.y;
    }
}

/* Lane t has v[b] of column 4 b + t, and gets those of columns 8 q + 2 t and 8 q + 2 t + 1. */
__device__ static inline void moe_gather(const float (&v)[8], int t, float (&to)[4][2]) {
#pragma unroll
  for (int q = 0; q < 4; ++q)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const float low = __shfl_sync(0xffffffffu, v[2 * q], 2 * t % 4 + e, 4);
      const float high = __shfl_sync(0xffffffffu, v[2 * q + 1], 2 * t % 4 + e, 4);
      to[q][e] = t < 2 ? low : high;
    }
}

#endif
