/* A NaN is not below 0 and passes. */
#include "cuda/kernel/flat.cuh"

__device__ static inline float relu(float x) { return x < 0 ? 0.0f : x; }

__device__ static inline void square(const float (&x)[1], float (&y)[1]) { y[0] = relu(x[0]) * relu(x[0]); }
/* Twice the product, because twice a factor may overflow. */
__device__ static inline void slope(const float (&x)[2], float (&y)[1]) { y[0] = 2.0f * (relu(x[1]) * x[0]); }

template <class T, int N> __device__ inline void fwd(const tigon_relu_squared_fwd_problem &p, const flat_walk &walk) {
  const tigon_rows *const in[] = {&p.x}, *const out[] = {&p.y};
  flat_map<T, N>(p.space, p.cols, walk, in, out, square);
}
template <class T, int N> __device__ inline void bwd(const tigon_relu_squared_bwd_problem &p, const flat_walk &walk) {
  const tigon_rows *const in[] = {&p.dy, &p.x}, *const out[] = {&p.dx};
  flat_map<T, N>(p.space, p.cols, walk, in, out, slope);
}

#define KERNEL(name, entry, ...)                                                                                \
  KERNEL_BY_DTYPE(                                                                                              \
      name, (FLAT_THREADS, 4),                                                                                  \
      (const __grid_constant__ tigon_relu_squared_##entry##_problem p, const __grid_constant__ flat_walk walk), \
      __VA_ARGS__)
#define PLAIN(name, ...) KERNEL_BY_DTYPE(name, (FLAT_THREADS, 4), (const __grid_constant__ flat_plain p), __VA_ARGS__)
PLAIN(relu_squared_fwd_plain, flat_map_plain<T, 1, 1>(p, square))
KERNEL(relu_squared_fwd_wide, fwd, fwd<T, pack<T>::N>(p, walk))
KERNEL(relu_squared_fwd_any, fwd, fwd<T, 1>(p, walk))
PLAIN(relu_squared_bwd_plain, flat_map_plain<T, 2, 1>(p, slope))
KERNEL(relu_squared_bwd_wide, bwd, bwd<T, pack<T>::N>(p, walk))
KERNEL(relu_squared_bwd_any, bwd, bwd<T, 1>(p, walk))
