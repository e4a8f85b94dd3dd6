/* c = act(a) * b and its gradients: swiglu and geglu. */
#ifndef TIGON_CUDA_KERNEL_GATE_CUH
#define TIGON_CUDA_KERNEL_GATE_CUH

#include "cuda/kernel/activation.cuh"
#include "cuda/kernel/map.cuh"

/* c of a and b. */
template <class T, activation ACT> __device__ inline void gate_fwd(const float (&x)[2], float (&y)[1]) {
  y[0] = activate_times<T, ACT>(x[0], x[1]);
}
/* da and db of dc, a and b. */
template <class T, activation ACT> __device__ inline void gate_bwd(const float (&x)[3], float (&y)[2]) {
  float value;
  const float slope = activate_slope<T, ACT>(x[1], value);
  y[0] = x[0] * x[2] * slope;
  y[1] = x[0] * value;
}

#endif
