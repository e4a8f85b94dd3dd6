/* Elements and 16-byte packs of them: arithmetic is in f32, an output is rounded once. */
#ifndef TIGON_CUDA_KERNEL_ELEMENT_CUH
#define TIGON_CUDA_KERNEL_ELEMENT_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "problem/rows.h"

typedef __half f16;
typedef __nv_bfloat16 bf16;

__device__ static inline float to_f32(float v) { return v; }
__device__ static inline float to_f32(f16 v) { return __half2float(v); }
__device__ static inline float to_f32(bf16 v) { return __bfloat162float(v); }

template <class T> __device__ inline T from_f32(float v);
template <> __device__ inline float from_f32<float>(float v) { return v; }
template <> __device__ inline f16 from_f32<f16>(float v) { return __float2half_rn(v); }
template <> __device__ inline bf16 from_f32<bf16>(float v) { return __float2bfloat16_rn(v); }

/* v as an element of dtype T has it. */
template <class T> __device__ inline float rounded(float v) { return to_f32(from_f32<T>(v)); }

/* Element i of a vector whose dtype only the problem knows. */
__device__ static inline float load_any(const void *data, int64_t i, tigon_dtype dtype) {
  return dtype == TIGON_F32   ? ((const float *)data)[i]
         : dtype == TIGON_F16 ? to_f32(((const f16 *)data)[i])
                              : to_f32(((const bf16 *)data)[i]);
}
/* The same in two steps, the load and what waits for it. */
__device__ static inline unsigned load_raw(const void *data, int64_t i, tigon_dtype dtype) {
  return dtype == TIGON_F32 ? ((const unsigned *)data)[i] : ((const uint16_t *)data)[i];
}
__device__ static inline float value_of(unsigned raw, tigon_dtype dtype) {
  return dtype == TIGON_F32   ? __uint_as_float(raw)
         : dtype == TIGON_F16 ? to_f32(__ushort_as_half((unsigned short)raw))
                              : __uint_as_float(raw << 16);
}
/* N of them, on their way together. */
template <int N> __device__ inline void load_any(const void *data, int64_t i, tigon_dtype dtype, float (&to)[N]) {
  const auto load = [&](const auto *from) {
#pragma unroll
    for (int j = 0; j < N; ++j) to[j] = to_f32(from[i + j]);
  };
  if (dtype == TIGON_F32)
    load((const float *)data);
  else if (dtype == TIGON_F16)
    load((const f16 *)data);
  else
    load((const bf16 *)data);
}
__device__ static inline void store_any(void *data, int64_t i, tigon_dtype dtype, float v) {
  if (dtype == TIGON_F32)
    ((float *)data)[i] = v;
  else if (dtype == TIGON_F16)
    ((f16 *)data)[i] = from_f32<f16>(v);
  else
    ((bf16 *)data)[i] = from_f32<bf16>(v);
}
__device__ static inline int64_t load_index(const void *data, int64_t i, tigon_dtype dtype) {
  return dtype == TIGON_I64 ? ((const int64_t *)data)[i] : ((const int32_t *)data)[i];
}

/* What one load moves, COUNT elements of T: a pack of 16 bytes, aligned to 16, or one element. A pack is kept in four registers as it
 * came, and its elements are taken out of them where they are used. */
template <class T, int COUNT = 16 / sizeof(T)> struct pack {
  static_assert(COUNT == 16 / sizeof(T), "one element or 16 bytes of them");
  enum { N = COUNT };
  uint4 bits;
};
template <class T> struct pack<T, 1> { T bits; };

/* The elements of 16 bytes that were loaded as such: out of a pack in memory each element would be loaded by itself. */
template <class T> __device__ inline pack<T> pack_of(const uint4 &bits) { return pack<T>{bits}; }

/* With no hint: where what was read first leaves the L2 first, a cold call takes a twentieth longer (docs/lab/rms_norm/cuda.md). */
template <class T, int N = pack<T>::N> __device__ inline pack<T, N> load_pack(const T *at) {
  if constexpr (N == 1)
    return pack<T, 1>{*at};
  else
    return pack<T, N>{*(const uint4 *)at};
}
/* One store: nvcc makes four, of 4 bytes, of an assignment in a condition. */
__device__ static inline void store_16_bytes(void *at, const uint4 &bits) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(at)), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
}
template <class T, int N> __device__ inline void store_pack(T *at, const pack<T, N> &v) {
  if constexpr (N == 1)
    *at = v.bits;
  else
    store_16_bytes(at, v.bits);
}
template <class T, int N = pack<T>::N> __device__ inline pack<T, N> zero_pack() {
  if constexpr (N == 1)
    return pack<T, 1>{from_f32<T>(0)};
  else
    return pack<T, N>{uint4{0, 0, 0, 0}};
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

template <class T, int N> __device__ inline void unpack(const pack<T, N> &from, float (&to)[N]) {
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
template <class T, int N> __device__ inline pack<T, N> packed(const float (&from)[N]) {
  if constexpr (N == 1) {
    return pack<T, 1>{from_f32<T>(from[0])};
  } else {
    constexpr int EACH = N / 4;
    return pack<T, N>{
        uint4{narrow(from, T()), narrow(from + EACH, T()), narrow(from + 2 * EACH, T()), narrow(from + 3 * EACH, T())}};
  }
}

/* Into the L2. */
__device__ static inline void prefetch(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

/* N consecutive elements from i on of a vector in f32 or in dtype T, where both are aligned to 16 bytes. */
template <class T>
__device__ inline void load_vector(const void *data, tigon_dtype dtype, int64_t i, float (&to)[pack<T>::N]) {
  if (dtype == TIGON_F32) {
#pragma unroll
    for (int j = 0; j < pack<T>::N; j += 4) {
      const float4 v = __ldg((const float4 *)((const float *)data + i + j));
      to[j] = v.x, to[j + 1] = v.y, to[j + 2] = v.z, to[j + 3] = v.w;
    }
  } else {
    const uint4 bits = __ldg((const uint4 *)((const T *)data + i));
    unpack(pack_of<T>(bits), to);
  }
}

/* Element by element, each product rounded once. */
__device__ static inline unsigned multiply(unsigned a, unsigned b, float) {
  return __float_as_uint(__uint_as_float(a) * __uint_as_float(b));
}
__device__ static inline unsigned multiply(unsigned a, unsigned b, bf16) {
  const __nv_bfloat162 v = __hmul2(*(const __nv_bfloat162 *)&a, *(const __nv_bfloat162 *)&b);
  return *(const unsigned *)&v;
}
__device__ static inline unsigned multiply(unsigned a, unsigned b, f16) {
  const __half2 v = __hmul2(*(const __half2 *)&a, *(const __half2 *)&b);
  return *(const unsigned *)&v;
}
template <class T> __device__ inline pack<T> product(const pack<T> &a, const pack<T> &b) {
  return pack_of<T>(uint4{multiply(a.bits.x, b.bits.x, T()), multiply(a.bits.y, b.bits.y, T()),
                          multiply(a.bits.z, b.bits.z, T()), multiply(a.bits.w, b.bits.w, T())});
}

/* From here on the elements are taken out of their registers again, where the compiler would hold them apart, in twice as many. */
__device__ static inline void keep_packed(uint4 &v) { asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)); }
template <int PACKS> __device__ inline void keep_packed(uint4 (&v)[PACKS]) {
#pragma unroll
  for (int k = 0; k < PACKS; ++k) keep_packed(v[k]);
}
template <class T, int N> __device__ inline void keep_packed(pack<T, N> &v) {
  if constexpr (N > 1) keep_packed(v.bits);
}
/* The same for the assembler, which sees through that: by another instruction than unpack()'s. */
template <class T> __device__ inline void unpack_again(const uint4 &from, float (&to)[pack<T>::N]) {
  unpack(pack_of<T>(from), to);
}
template <> __device__ inline void unpack_again<bf16>(const uint4 &from, float (&to)[8]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm volatile("prmt.b32 %0, %1, 0, 0x1044;" : "=f"(to[2 * i]) : "r"(words[i]));
    asm volatile("prmt.b32 %0, %1, 0, 0x3244;" : "=f"(to[2 * i + 1]) : "r"(words[i]));
  }
}
template <> __device__ inline void unpack_again<f16>(const uint4 &from, float (&to)[8]) {
  const uint32_t words[4] = {from.x, from.y, from.z, from.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t turned;
    asm volatile("prmt.b32 %0, %1, 0, 0x1032;" : "=r"(turned) : "r"(words[i]));
    const float2 both = __half22float2(*(const __half2 *)&turned);
    to[2 * i] = both.y, to[2 * i + 1] = both.x;
  }
}

/* Row r of a tensor of T. */
template <class T> __device__ inline T *row_of(const tigon_row_space &space, const tigon_rows &t, int64_t r) {
  return (T *)t.data + tigon_row_offset(&space, &t, r);
}

/* Threads that an SM has room for, for launch bounds: 1536 on compute capability 8.6 to 8.9 and 12. */
#if defined(__CUDA_ARCH__) && (__CUDA_ARCH__ >= 1200 || (__CUDA_ARCH__ > 800 && __CUDA_ARCH__ < 900))
enum { SM_THREADS = 1536 };
#else
enum { SM_THREADS = 2048 };
#endif

/* A kernel for each dtype: KERNEL_BY_DTYPE(rms_norm_fwd, (1024), (const problem p), body<T>(p)) makes rms_norm_fwd_f32, _f16 and _bf16,
 * each of which does what stands last with T as its dtype. `bounds` are launch bounds. */
#define KERNEL_BY_DTYPE(name, bounds, parameters, ...)                         \
  extern "C" __global__ void __launch_bounds__ bounds name##_f32 parameters {  \
    typedef float T;                                                           \
    __VA_ARGS__;                                                               \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__ bounds name##_f16 parameters {  \
    typedef f16 T;                                                             \
    __VA_ARGS__;                                                               \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__ bounds name##_bf16 parameters { \
    typedef bf16 T;                                                            \
    __VA_ARGS__;                                                               \
  }

#endif
