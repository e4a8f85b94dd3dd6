/* Packs of 16-bit elements two at a time: a register has two of them, and one conversion rounds two. */
#ifndef TIGON_CUDA_KERNEL_PAIR_CUH
#define TIGON_CUDA_KERNEL_PAIR_CUH

#include "cuda/kernel/element.cuh"

template <>
__device__ inline void unpack<bf16>(const pack<bf16> &from, float (&to)[pack<bf16>::N]) {
  const uint4 bits = *(const uint4 *)&from;
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(words[i] << 16);
    to[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
  }
}
template <>
__device__ inline void unpack<f16>(const pack<f16> &from, float (&to)[pack<f16>::N]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 v = __half22float2(((const __half2 *)&from)[i]);
    to[2 * i] = v.x, to[2 * i + 1] = v.y;
  }
}

template <>
__device__ inline pack<bf16> packed<bf16>(const float (&from)[pack<bf16>::N]) {
  pack<bf16> to;
#pragma unroll
  for (int i = 0; i < 4; ++i) ((__nv_bfloat162 *)&to)[i] = __floats2bfloat162_rn(from[2 * i], from[2 * i + 1]);
  return to;
}
template <>
__device__ inline pack<f16> packed<f16>(const float (&from)[pack<f16>::N]) {
  pack<f16> to;
#pragma unroll
  for (int i = 0; i < 4; ++i) ((__half2 *)&to)[i] = __floats2half2_rn(from[2 * i], from[2 * i + 1]);
  return to;
}

#endif
