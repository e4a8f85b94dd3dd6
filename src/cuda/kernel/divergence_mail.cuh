/* What the warps of a cluster tell each other of a row of both sides: first their largest logits and sums of exponentials, then two sums. */
#ifndef TIGON_CUDA_KERNEL_DIVERGENCE_MAIL_CUH
#define TIGON_CUDA_KERNEL_DIVERGENCE_MAIL_CUH

#include "cuda/divergence.h"
#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/element.cuh"

enum { STREAM_WARPS = DIV_STREAM_THREADS / WARP };
typedef cluster_mail<4, STREAM_WARPS> stream_mail;

/* Results that are no normal number are 0. */
__device__ static inline float stream_exp2(float x) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x));
  return e;
}

#if __CUDA_ARCH__ >= 900
/* `bytes` into shared memory; they count at the barrier, which expects them. */
__device__ static inline void stream_copy(const void *to, const void *from, int bytes, const uint64_t &barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}
/* v to block `rank` of the cluster, to the same place; it counts at that block's barrier. */
__device__ static inline void stream_send(const float *to, float v, const uint64_t &barrier, int rank) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(shared_address(to, rank)),
      "f"(v), "r"(shared_address(&barrier, rank))
      : "memory");
}
#endif

/* A half of a warp has what belongs to one side, or one of two sums, so that both are worked out at once. */
enum { HALF = WARP / 2, STREAM_EACH = stream_mail::MOST_BLOCKS * STREAM_WARPS / HALF };
__device__ static inline int stream_half() { return (int)threadIdx.x % WARP / HALF; }
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

/* Clears the mail of warps that a smaller cluster lacks: no logits, and empty sums. */
__device__ static inline void stream_clear(stream_mail &mail) {
  float *const of = &mail.of[0][0][0][0];
  enum { EACH = stream_mail::MOST_BLOCKS * STREAM_WARPS };
  for (int i = (int)threadIdx.x; i < stream_mail::BOXES * 4 * EACH; i += DIV_STREAM_THREADS)
    of[i] = i / EACH % 2 ? 0 : -INFINITY;
}

/* Value `i` of all the cluster's warps. */
__device__ static inline void stream_read(const stream_mail &mail, int turn, int i, float (&v)[STREAM_EACH]) {
  const float *of = mail.of[turn % mail.BOXES][i][0];
#pragma unroll
  for (int e = 0; e < STREAM_EACH; ++e) v[e] = of[e * HALF + (int)threadIdx.x % HALF];
}
__device__ static inline float stream_sum(const float (&v)[STREAM_EACH]) {
  float sum = v[0];
#pragma unroll
  for (int e = 1; e < STREAM_EACH; ++e) sum += v[e];
  return half_all<op_sum>(sum);
}

/* A side's largest logit, from each warp's own, and its sum of exponentials, from theirs. */
__device__ static inline void stream_take(const stream_mail &mail, int turn, float &largest, float &sum) {
  float own[STREAM_EACH], sums[STREAM_EACH];
  stream_read(mail, turn, 2 * stream_half(), own);
  stream_read(mail, turn, 2 * stream_half() + 1, sums);
  largest = own[0];
#pragma unroll
  for (int e = 1; e < STREAM_EACH; ++e) largest = op_max::of(own[e], largest);
  largest = half_all<op_max>(largest);
  const float from = largest == -INFINITY ? 0 : largest;
#pragma unroll
  for (int e = 0; e < STREAM_EACH; ++e) sums[e] *= stream_exp2(own[e] - from);
  sum = stream_sum(sums);
}

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
