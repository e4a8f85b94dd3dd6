/* What one load moves, N elements of T: a pack, aligned to 16 bytes, or one element. A pack is kept in four registers as it came, and
 * its elements are taken out of them where they are used. */
#ifndef TIGON_CUDA_KERNEL_CHUNK_CUH
#define TIGON_CUDA_KERNEL_CHUNK_CUH

#include "cuda/kernel/element.cuh"

template <class T, int N> struct chunk {
  static_assert(N == pack<T>::N, "one element or a pack");
  uint4 bits;
};
template <class T> struct chunk<T, 1> { T bits; };

template <class T, int N> __device__ inline chunk<T, N> load_chunk(const T *at) {
  if constexpr (N == 1)
    return chunk<T, 1>{*at};
  else
    return chunk<T, N>{*(const uint4 *)at};
}
template <class T, int N> __device__ inline void store_chunk(T *at, const chunk<T, N> &v) {
  if constexpr (N == 1)
    *at = v.bits;
  else
    store_16_bytes(at, v.bits);
}
template <class T, int N> __device__ inline chunk<T, N> zero_chunk() {
  if constexpr (N == 1)
    return chunk<T, 1>{from_f32<T>(0)};
  else
    return chunk<T, N>{uint4{0, 0, 0, 0}};
}

/* From here on the compiler has to unpack the chunk again, where it would hold its elements, twice as many registers, meanwhile. */
template <class T, int N> __device__ inline void unpack_again(chunk<T, N> &v) {
  if constexpr (N > 1) asm volatile("" : "+r"(v.bits.x), "+r"(v.bits.y), "+r"(v.bits.z), "+r"(v.bits.w));
}

/* The elements of a register. */
__device__ static inline void widen(unsigned word, float *to, float) { to[0] = __uint_as_float(word); }
__device__ static inline void widen(unsigned word, float *to, bf16) {
  to[0] = __uint_as_float(word << 16);
  to[1] = __uint_as_float(word & 0xffff0000u);
}
__device__ static inline void widen(unsigned word, float *to, f16) {
  const float2 v = __half22float2(*(const __half2 *)&word);
  to[0] = v.x, to[1] = v.y;
}
__device__ static inline unsigned narrow(const float *from, float) { return __float_as_uint(from[0]); }
__device__ static inline unsigned narrow(const float *from, bf16) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(from[0], from[1]);
  return *(const unsigned *)&v;
}
__device__ static inline unsigned narrow(const float *from, f16) {
  const __half2 v = __floats2half2_rn(from[0], from[1]);
  return *(const unsigned *)&v;
}

template <class T, int N> __device__ inline void unpack_chunk(const chunk<T, N> &from, float (&to)[N]) {
  if constexpr (N == 1) {
    to[0] = to_f32(from.bits);
  } else {
    constexpr int EACH = N / 4;
    widen(from.bits.x, to, T());
    widen(from.bits.y, to + EACH, T());
    widen(from.bits.z, to + 2 * EACH, T());
    widen(from.bits.w, to + 3 * EACH, T());
  }
}
template <class T, int N> __device__ inline chunk<T, N> pack_chunk(const float (&from)[N]) {
  if constexpr (N == 1) {
    return chunk<T, 1>{from_f32<T>(from[0])};
  } else {
    constexpr int EACH = N / 4;
    return chunk<T, N>{
        uint4{narrow(from, T()), narrow(from + EACH, T()), narrow(from + 2 * EACH, T()), narrow(from + 3 * EACH, T())}};
  }
}

#endif
