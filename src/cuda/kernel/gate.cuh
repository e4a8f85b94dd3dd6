/* c = act(a) * b and its gradients: swiglu and geglu. */
#ifndef TIGON_CUDA_KERNEL_GATE_CUH
#define TIGON_CUDA_KERNEL_GATE_CUH

#include "cuda/gate.h"
#include "cuda/kernel/activation.cuh"
#include "cuda/kernel/flat.cuh"

/* What makes elements, without options, as geglu has none: c of a and b; da and db of dc, a and b. */
template <class T, activation ACT> struct gate_plain {
  __device__ static void fwd(const float (&x)[2], float (&y)[1]) { y[0] = activate_times<T, ACT>(x[0], x[1]); }
  __device__ static void bwd(const float (&x)[3], float (&y)[2]) {
    float value;
    const float slope = activate_slope<T, ACT>(x[1], value);
    y[0] = x[0] * x[2] * slope;
    y[1] = x[0] * value;
  }
};

/* The same with factors and a clamp. A NaN is not beyond the limit and stays. */
template <class T, activation ACT> struct gate_scaled {
  float gate, down, limit; /* limit: Inf without a clamp */

  __device__ float input(float a) const { return gate * (a > limit ? limit : a); }
  __device__ float up(float b) const { return b > limit ? limit : b < -limit ? -limit : b; }
  __device__ void fwd(const float (&x)[2], float (&y)[1]) const {
    y[0] = activate<T, ACT>(input(x[0])) * down * up(x[1]);
  }
  __device__ void bwd(const float (&x)[3], float (&y)[2]) const {
    const float d = x[0] * down;
    float value;
    const float slope = activate_slope<T, ACT>(input(x[1]), value);
    y[0] = x[1] > limit ? 0.0f : d * up(x[2]) * slope * gate;
    y[1] = fabsf(x[2]) > limit ? 0.0f : d * value;
  }
};

template <class T, int N, class G>
__device__ inline void gate_rows(const tigon_gate_fwd_problem &p, const flat_walk &walk, const G &gate) {
  const tigon_rows *const in[] = {&p.a, &p.b}, *const out[] = {&p.c};
  flat_map<T, N>(p.space, p.cols, walk, in, out, [&](const float(&x)[2], float(&y)[1]) { gate.fwd(x, y); });
}
template <class T, int N, class G>
__device__ inline void gate_rows(const tigon_gate_bwd_problem &p, const flat_walk &walk, const G &gate) {
  const tigon_rows *const in[] = {&p.dc, &p.a, &p.b}, *const out[] = {&p.da, &p.db};
  flat_map<T, N>(p.space, p.cols, walk, in, out, [&](const float(&x)[3], float(&y)[2]) { gate.bwd(x, y); });
}

template <class T, int N, activation ACT, class P> __device__ inline void gate_any(const P &p, const flat_walk &walk) {
  if constexpr (ACT == ACT_SILU)
    if (!gate_is_plain(&p)) {
      const float limit = p.clamp > 0 ? p.clamp : __int_as_float(0x7f800000);
      return gate_rows<T, N>(p, walk, gate_scaled<T, ACT>{p.gate_mult, p.down_mult, limit});
    }
  gate_rows<T, N>(p, walk, gate_plain<T, ACT>());
}

#define GATE_KERNEL(name, blocks, entry, ...)                                                                       \
  KERNEL_BY_DTYPE(name, (FLAT_THREADS, blocks),                                                                     \
                  (const __grid_constant__ tigon_gate_##entry##_problem p, const __grid_constant__ flat_walk walk), \
                  __VA_ARGS__)
#define GATE_PLAIN(name, blocks, ...) \
  KERNEL_BY_DTYPE(name, (FLAT_THREADS, blocks), (const __grid_constant__ flat_plain p), __VA_ARGS__)

/* `blocks`: on an SM at least, so that enough loads are on their way. All kernels of a gate: GATE_KERNELS(swiglu, ACT_SILU). */
#define GATE_KERNELS(op, act)                                                        \
  GATE_PLAIN(op##_fwd_plain, 6, flat_map_plain<T, 2, 1>(p, gate_plain<T, act>::fwd)) \
  GATE_KERNEL(op##_fwd_wide, 6, fwd, gate_any<T, pack<T>::N, act>(p, walk))          \
  GATE_KERNEL(op##_fwd_any, 4, fwd, gate_any<T, 1, act>(p, walk))                    \
  GATE_PLAIN(op##_bwd_plain, 5, flat_map_plain<T, 3, 2>(p, gate_plain<T, act>::bwd)) \
  GATE_KERNEL(op##_bwd_wide, 5, bwd, gate_any<T, pack<T>::N, act>(p, walk))          \
  GATE_KERNEL(op##_bwd_any, 4, bwd, gate_any<T, 1, act>(p, walk))

#endif
