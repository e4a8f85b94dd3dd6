/* How the warps of a cluster fetch a row of both sides, and tell each other of it. */
#ifndef TIGON_CUDA_KERNEL_DIVERGENCE_MAIL_CUH
#define TIGON_CUDA_KERNEL_DIVERGENCE_MAIL_CUH

#include "cuda/divergence.h"
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/element.cuh"

/* Results that are no normal number are 0. */
__device__ static inline float stream_exp2(float x) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
  return e;
}
__device__ static inline float stream_log2(float x) {
  float log;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(log) : "f"(x));
  return log;
}

#if __CUDA_ARCH__ >= 900
/* `bytes` into shared memory; they count at the barrier, which expects them. */
__device__ static inline void stream_copy(const void *to, const void *from, int bytes, const uint64_t &barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}
/* The same into the L2, for whoever comes. */
__device__ static inline void stream_prefetch(const void *from, int bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(__cvta_generic_to_global(from)), "r"(bytes)
               : "memory");
}
#endif

/* A half of a warp has what belongs to one side, or one of two sums, so that both are worked out at once. */
enum { HALF = WARP / 2 };
__device__ static inline int stream_half() { return (int)(threadIdx.x / HALF % 2); }
template <class Op> __device__ inline float half_all(float v) {
#pragma unroll
  for (int d = HALF / 2; d > 0; d /= 2) v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}
/* All lanes' `a` in the first half, and `b` in the second. */
template <class Op> __device__ inline float both_all(float a, float b) {
  const float own = stream_half() ? b : a, other = stream_half() ? a : b;
  return half_all<Op>(Op::of(own, __shfl_xor_sync(0xffffffffu, other, HALF)));
}
template <class V> __device__ inline V of_half(V v, int half) { return __shfl_sync(0xffffffffu, v, half * HALF); }

__device__ static inline float stream_lse(float largest, float sum) {
  return fabsf(largest) < INFINITY ? (float)(((double)largest + log2((double)sum)) * 0.6931471805599453) : largest;
}

/* The largest element of registers, from -Inf on; those of 16 bits two at a time. */
__device__ static inline void stream_raise(unsigned &most, unsigned word, float) {
  most = __float_as_uint(op_max::of(__uint_as_float(most), __uint_as_float(word)));
}
__device__ static inline void stream_raise(unsigned &most, unsigned word, bf16) {
  asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(most) : "r"(word));
}
__device__ static inline void stream_raise(unsigned &most, unsigned word, f16) {
  asm("max.NaN.f16x2 %0, %0, %1;" : "+r"(most) : "r"(word));
}
template <class T> struct stream_most {
  enum { EACH = 4 / sizeof(T) };
  unsigned of;

  __device__ stream_most() {
    float none[EACH];
    for (float &v : none) v = -INFINITY;
    of = narrow(none, T());
  }
  __device__ inline void raise(const uint4 &by) {
    stream_raise(of, by.x, T()), stream_raise(of, by.y, T()), stream_raise(of, by.z, T()), stream_raise(of, by.w, T());
  }
  __device__ inline float largest() const {
    float v[EACH];
    widen(of, v, T());
    return EACH == 1 ? v[0] : op_max::of(v[0], v[EACH - 1]);
  }
};

#endif
