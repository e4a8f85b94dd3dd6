/* A NaN is not below 0 and passes. */
#include "cuda/kernel/flat.cuh"
#include "cuda/relu_squared.h"

__device__ static inline float relu(float x) { return x < 0 ? 0.0f : x; }

template <class T, int N> __device__ inline void fwd(const tigon_relu_squared_fwd_problem &p, const flat_walk &walk) {
  const tigon_rows *const in[] = {&p.x}, *const out[] = {&p.y};
  flat_map<T, N, N == 1 ? RELU_SQUARED_FWD_PACKS * FLAT_ANY : RELU_SQUARED_FWD_PACKS>(
      p.space, p.cols, walk, in, out, [](const float(&x)[1], float(&y)[1]) { y[0] = relu(x[0]) * relu(x[0]); });
}

/* Twice the product, because twice a factor may overflow. */
template <class T, int N> __device__ inline void bwd(const tigon_relu_squared_bwd_problem &p, const flat_walk &walk) {
  const tigon_rows *const in[] = {&p.dy, &p.x}, *const out[] = {&p.dx};
  flat_map<T, N, N == 1 ? RELU_SQUARED_BWD_PACKS * FLAT_ANY : RELU_SQUARED_BWD_PACKS>(
      p.space, p.cols, walk, in, out, [](const float(&x)[2], float(&y)[1]) { y[0] = 2.0f * (relu(x[1]) * x[0]); });
}

#define KERNEL(name, entry, ...)                                                                                \
  KERNEL_BY_DTYPE(                                                                                              \
      name, (FLAT_THREADS, 4),                                                                                  \
      (const __grid_constant__ tigon_relu_squared_##entry##_problem p, const __grid_constant__ flat_walk walk), \
      __VA_ARGS__)
KERNEL(relu_squared_fwd_wide, fwd, fwd<T, pack<T>::N>(p, walk))
KERNEL(relu_squared_fwd_any, fwd, fwd<T, 1>(p, walk))
KERNEL(relu_squared_bwd_wide, bwd, bwd<T, pack<T>::N>(p, walk))
KERNEL(relu_squared_bwd_any, bwd, bwd<T, 1>(p, walk))
