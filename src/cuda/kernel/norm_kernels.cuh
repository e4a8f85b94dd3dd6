/* All kernels of a norm: NORM_KERNELS(rms_norm, NORM_RMS, (NORM_MOST_THREADS), HOLD_EARLY). */
#ifndef TIGON_CUDA_KERNEL_NORM_KERNELS_CUH
#define TIGON_CUDA_KERNEL_NORM_KERNELS_CUH

#include "cuda/kernel/norm_bwd.cuh"
#include "cuda/kernel/norm_bwd_few.cuh"
#include "cuda/kernel/norm_bwd_modulated.cuh"
#include "cuda/kernel/norm_bwd_plain.cuh"
#include "cuda/kernel/norm_bwd_staged.cuh"
#include "cuda/kernel/norm_fwd_layer.cuh"
#include "cuda/kernel/norm_fwd_modulated.cuh"

#define NORM_FWD(name, bounds, ...) \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ tigon_norm_fwd_problem p, const norm_walk walk), __VA_ARGS__)
#define NORM_BWD(name, ...)                                                                                           \
  KERNEL_BY_DTYPE(name, (NORM_BWD_THREADS), (const __grid_constant__ tigon_norm_bwd_problem p, const norm_walk walk), \
                  __VA_ARGS__)

#define NORM_STAGED(name, ...)                    \
  KERNEL_BY_DTYPE(name, (NORM_STAGED_THREADS, 1), \
                  (const __grid_constant__ tigon_norm_bwd_problem p, const norm_walk walk), __VA_ARGS__)

#define NORM_HELD(name, ...) \
  KERNEL_BY_DTYPE(name, (NORM_BWD_THREADS), (const __grid_constant__ norm_held p), __VA_ARGS__)

#define NORM_FEW(name, ...) \
  KERNEL_BY_DTYPE(name, (NORM_FEW_THREADS, 1), (const __grid_constant__ norm_few p), __VA_ARGS__)

#define NORM_PLAIN(name, bounds, ...) KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ norm_plain p), __VA_ARGS__)

/* Rows at any pitches, vectors of any dtype. Two blocks of a cluster's share an SM. */
#define NORM_FWD_ANY(op, kind)                                                                                  \
  NORM_FWD(op##_fwd_held, (NORM_MOST_THREADS), norm_fwd_held<T, kind, 4, HOLD_ANY>(p, p.space.rows, walk.team)) \
  NORM_FWD(op##_fwd_shared, (NORM_SHARE_THREADS, 2),                                                            \
           norm_fwd_held<T, kind, 4, HOLD_ANY, true>(p, p.space.rows, walk.team, walk.share))                   \
  NORM_FWD(op##_fwd_wide, (NORM_MOST_THREADS), norm_fwd_walked<T, kind, pack<T>::N>(p, walk))                   \
  NORM_FWD(op##_fwd_any, (NORM_MOST_THREADS), norm_fwd_walked<T, kind, 1>(p, walk))

/* `bounds` and `hold` are fwd_4's. */
#define NORM_FWD_KERNELS(op, kind, bounds, hold)                                                        \
  NORM_PLAIN(op##_fwd_2, (NORM_MOST_THREADS), norm_fwd_held<T, kind, 2, HOLD_EARLY>(p, p.rows, p.team)) \
  NORM_PLAIN(op##_fwd_4, bounds, norm_fwd_held<T, kind, 4, hold>(p, p.rows, p.team))                    \
  NORM_FWD_ANY(op, kind)

/* Two blocks fill an SM, whose rows then lie in its L1; modulated spills in so few registers. A fused add has none: it stores what the
 * second sweep reads. */
#define NORM_SWEPT(op, kind)                                                                                     \
  NORM_PLAIN(op##_fwd_swept, (NORM_SWEPT_THREADS, kind == NORM_MODULATED ? 1 : SM_THREADS / NORM_SWEPT_THREADS), \
             norm_fwd_swept<T, kind, 4>(p))

#define NORM_BWD_KERNELS(op, kind)                                           \
  NORM_FEW(op##_bwd_few, norm_bwd_few<T, kind>(p))                           \
  NORM_HELD(op##_bwd_plain, norm_bwd_plain<T, kind>(p))                      \
  NORM_BWD(op##_bwd_held_any, norm_bwd_held<T, kind, false>(p, walk))        \
  NORM_STAGED(op##_bwd_staged, norm_bwd_staged<T, kind, true>(p, walk))      \
  NORM_STAGED(op##_bwd_staged_any, norm_bwd_staged<T, kind, false>(p, walk)) \
  NORM_BWD(op##_bwd_wide, norm_bwd_walked<T, kind, pack<T>::N>(p, walk))     \
  NORM_BWD(op##_bwd_any, norm_bwd_walked<T, kind, 1>(p, walk))

#define NORM_KERNELS(op, kind, bounds, hold) NORM_FWD_KERNELS(op, kind, bounds, hold) NORM_BWD_KERNELS(op, kind)

/* 64 registers hold w and b, too; of fwd_late's rows, three blocks with 40 each are quicker. */
#define NORM_LAYER_KERNELS(op)                                                                                     \
  NORM_PLAIN(op##_fwd_2, (NORM_MOST_THREADS), norm_fwd_layer_held<T, 2, false>(p))                                 \
  NORM_PLAIN(op##_fwd_4, (NORM_HELD_THREADS, 2), norm_fwd_layer_held<T, 4, true>(p))                               \
  NORM_PLAIN(op##_fwd_late, (NORM_HELD_THREADS, 3), norm_fwd_held<T, NORM_LAYER, 4, HOLD_LATE>(p, p.rows, p.team)) \
  NORM_PLAIN(op##_fwd_swept, (NORM_SWEPT_THREADS, SM_THREADS / NORM_SWEPT_THREADS), norm_fwd_layer_swept<T, 4>(p)) \
  NORM_FWD_ANY(op, NORM_LAYER)                                                                                     \
  NORM_BWD(op##_bwd_held, norm_bwd_held<T, NORM_LAYER, true>(p, walk))                                             \
  NORM_BWD_KERNELS(op, NORM_LAYER)

#define NORM_MODULATED_KERNELS(op)                                               \
  NORM_FWD_KERNELS(op, NORM_MODULATED, (NORM_MOST_THREADS), HOLD_LATE)           \
  NORM_PLAIN(op##_fwd_stashed, (NORM_MOST_THREADS), modulated_fwd_stashed<T>(p)) \
  NORM_BWD(op##_bwd_held, modulated_bwd_held<T, true>(p, walk))                  \
  NORM_BWD(op##_bwd_held_any, modulated_bwd_held<T, false>(p, walk))             \
  NORM_BWD(op##_bwd_wide, modulated_bwd_walked<T, pack<T>::N>(p, walk))          \
  NORM_BWD(op##_bwd_any, modulated_bwd_walked<T, 1>(p, walk))

#endif
