/* Defines the kernels of a norm from the entries of cuda/norm_kernels.def. A .cu defines RMS_NORM(...) NORM_DEFINE(rms_norm, __VA_ARGS__)
 * and includes the entries. */
#ifndef TIGON_CUDA_KERNEL_NORM_KERNELS_CUH
#define TIGON_CUDA_KERNEL_NORM_KERNELS_CUH

#include "cuda/kernel/norm_bwd.cuh"
#include "cuda/kernel/norm_bwd_few.cuh"
#include "cuda/kernel/norm_bwd_modulated.cuh"
#include "cuda/kernel/norm_bwd_plain.cuh"
#include "cuda/kernel/norm_bwd_staged.cuh"
#include "cuda/kernel/norm_fwd_layer.cuh"
#include "cuda/kernel/norm_fwd_modulated.cuh"

#define NORM_TAKES_FWD(name, bounds, ...) \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ tigon_norm_fwd_problem p, const norm_walk walk), __VA_ARGS__)
#define NORM_TAKES_BWD(name, bounds, ...) \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ tigon_norm_bwd_problem p, const norm_walk walk), __VA_ARGS__)
#define NORM_TAKES_PLAIN(name, bounds, ...) \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ norm_plain p), __VA_ARGS__)
#define NORM_TAKES_HELD(name, bounds, ...) \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ norm_held p), __VA_ARGS__)
#define NORM_TAKES_FEW(name, bounds, ...) \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ norm_few p), __VA_ARGS__)
#define NORM_TAKES_AGAIN(...)

#define NORM_DEFINE(op, name, parameters, how, needs, over_packs, most_packs, over_cols, most_cols, each, bounds, ...) \
  NORM_TAKES_##parameters(op##_##name, bounds, __VA_ARGS__)

#endif
