/* c of a gate and up, and the gradients. */
#ifndef TIGON_CUDA_KERNEL_MOE_GATE_CUH
#define TIGON_CUDA_KERNEL_MOE_GATE_CUH

#include "cuda/kernel/activation.cuh"
#include "problem/moe.h"

/* For results of dtype T. A NaN is not beyond the limit and stays. */
template <class T> struct moe_gate {
  float gate, down, offset, limit; /* limit: Inf without a clamp */
  bool gelu;

  __device__ explicit moe_gate(const tigon_fused_moe_problem &p)
      : gate(p.numbers.gate_mult), down(p.numbers.down_mult), offset(p.numbers.up_offset),
        limit(p.numbers.clamp > 0 ? p.numbers.clamp : __int_as_float(0x7f800000)), gelu(p.act == TIGON_MOE_GELU_TANH) {}
  __device__ float input(float a) const { return gate * (a > limit ? limit : a); }
  __device__ float up(float b) const { return (b > limit ? limit : b < -limit ? -limit : b) + offset; }

  /* Makes c for each place. The activation is chosen once. */
  __device__ void c(const float (&a)[4][2], const float (&b)[4][2], float (&to)[4][2]) const {
    each([&](int q, int e, auto act) {
      to[q][e] = activate<T, decltype(act)::OF>(input(a[q][e])) * down * up(b[q][e]);
    });
  }
  /* a and b become the gradients of dc. */
  __device__ void slopes(const float (&dc)[4][2], float (&a)[4][2], float (&b)[4][2], float (&c)[4][2]) const {
    each([&](int q, int e, auto act) {
      float &x = a[q][e], &y = b[q][e], value;
      const float slope = activate_slope<T, decltype(act)::OF>(input(x), value), v = up(y), d = dc[q][e] * down;
      c[q][e] = value * down * v;
      x = x > limit ? 0.0f : d * v * slope * gate;
      y = fabsf(y) > limit ? 0.0f : d * value;
    });
  }

private:
  template <activation ACT> struct chosen { static constexpr activation OF = ACT; };
  template <class F> __device__ void each(F f) const {
    if (gelu)
      all(f, chosen<ACT_GELU_TANH>());
    else
      all(f, chosen<ACT_SILU>());
  }
  template <class F, class A> __device__ static void all(F f, A act) {
#pragma unroll
    for (int q = 0; q < 4; ++q)
#pragma unroll
      for (int e = 0; e < 2; ++e) f(q, e, act);
  }
};

#endif
