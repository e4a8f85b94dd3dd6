#include "cuda/kernel/activation.cuh"
#include "cuda/kernel/columns.cuh"

/* tanh(u) and its slope 1 - tanh(u)^2, which is 0 below 2^-123; f32 as src/cpu/dyt.c. For 16-bit results within 2^-18 of tanh and
 * (16 + 4 |u|) 2^-24 of the slope: (1 - e) / (1 + e) with e = exp(-2 |u|), or u - u^3 / 3 where 1 - e would cancel. */
template <class T> __device__ inline float tanh_of(float u, float &slope) {
  const float size = fabsf(u);
  if constexpr (sizeof(T) == 4) {
    const float y = -2.0f * size;
    int n;
    const float less = exp_less_1(exp_reduce(y < -87.0f ? -87.0f : y, n)), power = add_exponent(1.0f, n);
    const float rest = fmaf(less, power, power - 1.0f), share = 1.0f / (2.0f + rest);
    slope = y < -87.0f ? 0.0f : 4.0f * fmaf(less, power, power) * (share * share);
    return copysignf(rest * share, u);
  } else {
    const float e = exp2_flushed(size * -2.88539008f), share = reciprocal_fast(fmaf(0.5f, e, 0.5f)), less = e * share;
    slope = less * share;
    const float near = fmaf(size * size * size, -0.333333333f, size);
    return copysignf(size < 0.0625f ? near : 1.0f - less, u);
  }
}

template <class T> __device__ inline float forward(float x, float alpha, float gamma, float beta) {
  float slope;
  return fmaf(gamma, tanh_of<T>(alpha * x, slope), beta);
}

/* dx, and the terms of dgamma, dbeta and dalpha. */
template <class T> __device__ inline float backward(float dy, float x, float alpha, float gamma, columns_terms &terms) {
  float slope;
  const float t = tanh_of<T>(alpha * x, slope), q = dy * gamma * slope;
  terms = columns_terms{dy * t, dy, q * x};
  return alpha * q;
}

COLUMNS_KERNELS(dyt, forward, backward)
