/* c = act(a) * b and its gradients: swiglu and geglu. */
#ifndef TIGON_CUDA_KERNEL_GATE_CUH
#define TIGON_CUDA_KERNEL_GATE_CUH

#include "cuda/gate.h"
#include "cuda/kernel/activation.cuh"
#include "cuda/kernel/flat.cuh"

/* Factors of 1 and no clamp are `PLAIN`; geglu has no others. */
template <bool PLAIN> struct gate_options {
  float gate, down, limit; /* limit: Inf without a clamp */

  /* A NaN is not beyond the limit and stays. */
  __device__ float input(float a) const { return PLAIN ? a : gate * (a > limit ? limit : a); }
  __device__ float up(float b) const { return PLAIN ? b : b > limit ? limit : b < -limit ? -limit : b; }
};
template <bool PLAIN, class P> __device__ inline gate_options<PLAIN> gate_options_of(const P &p) {
  return gate_options<PLAIN>{p.gate_mult, p.down_mult, p.clamp > 0 ? p.clamp : __int_as_float(0x7f800000)};
}
template <class P> __device__ inline bool gate_is_plain(const P &p) {
  return p.gate_mult == 1 && p.down_mult == 1 && !(p.clamp > 0);
}

template <class T, int N, activation ACT, bool PLAIN>
__device__ inline void gate_fwd_rows(const tigon_gate_fwd_problem &p, const flat_walk &walk) {
  const gate_options<PLAIN> o = gate_options_of<PLAIN>(p);
  const tigon_rows *const in[] = {&p.a, &p.b}, *const out[] = {&p.c};
  flat_map<T, N, N == 1 ? GATE_FWD_PACKS * FLAT_ANY : GATE_FWD_PACKS>(
      p.space, p.cols, walk, in, out, [&](const float(&x)[2], float(&y)[1]) {
        y[0] = PLAIN ? activate_times<T, ACT>(x[0], x[1]) : activate<T, ACT>(o.input(x[0])) * o.down * o.up(x[1]);
      });
}

template <class T, int N, activation ACT, bool PLAIN>
__device__ inline void gate_bwd_rows(const tigon_gate_bwd_problem &p, const flat_walk &walk) {
  const gate_options<PLAIN> o = gate_options_of<PLAIN>(p);
  const tigon_rows *const in[] = {&p.dc, &p.a, &p.b}, *const out[] = {&p.da, &p.db};
  flat_map<T, N, N == 1 ? GATE_BWD_PACKS * FLAT_ANY : GATE_BWD_PACKS>(
      p.space, p.cols, walk, in, out, [&](const float(&x)[3], float(&y)[2]) {
        const float d = PLAIN ? x[0] : x[0] * o.down;
        float value;
        const float slope = activate_slope<T, ACT>(o.input(x[1]), value);
        y[0] = d * o.up(x[2]) * slope;
        y[1] = d * value;
        if (PLAIN) return;
        y[0] = x[1] > o.limit ? 0.0f : y[0] * o.gate;
        y[1] = fabsf(x[2]) > o.limit ? 0.0f : y[1];
      });
}

template <class T, int N, activation ACT>
__device__ inline void gate_fwd(const tigon_gate_fwd_problem &p, const flat_walk &walk) {
  if constexpr (ACT == ACT_SILU)
    if (!gate_is_plain(p)) return gate_fwd_rows<T, N, ACT, false>(p, walk);
  gate_fwd_rows<T, N, ACT, true>(p, walk);
}

template <class T, int N, activation ACT>
__device__ inline void gate_bwd(const tigon_gate_bwd_problem &p, const flat_walk &walk) {
  if constexpr (ACT == ACT_SILU)
    if (!gate_is_plain(p)) return gate_bwd_rows<T, N, ACT, false>(p, walk);
  gate_bwd_rows<T, N, ACT, true>(p, walk);
}

#define GATE_KERNEL(name, blocks, entry, ...)                                                                       \
  KERNEL_BY_DTYPE(name, (FLAT_THREADS, blocks),                                                                     \
                  (const __grid_constant__ tigon_gate_##entry##_problem p, const __grid_constant__ flat_walk walk), \
                  __VA_ARGS__)

/* `blocks`: on an SM at least, so that enough loads are on their way. All kernels of a gate: GATE_KERNELS(swiglu, ACT_SILU). */
#define GATE_KERNELS(op, act)                                               \
  GATE_KERNEL(op##_fwd_wide, 6, fwd, gate_fwd<T, pack<T>::N, act>(p, walk)) \
  GATE_KERNEL(op##_fwd_any, 4, fwd, gate_fwd<T, 1, act>(p, walk))           \
  GATE_KERNEL(op##_bwd_wide, 5, bwd, gate_bwd<T, pack<T>::N, act>(p, walk)) \
  GATE_KERNEL(op##_bwd_any, 4, bwd, gate_bwd<T, 1, act>(p, walk))

#endif
