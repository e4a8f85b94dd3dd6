#include "cuda/kernel/group_norm_bwd.cuh"
#include "cuda/kernel/group_norm_fwd.cuh"

#define GROUP_FWD(name, bounds, ...)                                                                             \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ tigon_group_norm_fwd_problem p, const group_walk walk), \
                  __VA_ARGS__)
#define GROUP_BWD(name, bounds, ...)                                                                             \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ tigon_group_norm_bwd_problem p, const group_walk walk), \
                  __VA_ARGS__)

#define GROUP_PLAIN(name, bounds) \
  KERNEL_BY_DTYPE(name, bounds, (const __grid_constant__ group_plain p), group_fwd_plain<T, GROUP_PLAIN_PACKS>(p))

GROUP_PLAIN(group_norm_fwd_plain, (GROUP_PLAIN_THREADS / 2, 5)) /* 48 registers */
GROUP_PLAIN(group_norm_fwd_plain_long, (GROUP_PLAIN_THREADS, 2))
GROUP_FWD(group_norm_fwd_2, (GROUP_FWD_THREADS), group_fwd_held<T, 2, false>(p, walk))
GROUP_FWD(group_norm_fwd_4, (GROUP_MOST_THREADS), group_fwd_held<T, 4, false>(p, walk))
GROUP_FWD(group_norm_fwd_mixed, (GROUP_MOST_THREADS), group_fwd_held<T, 4, true>(p, walk))
GROUP_FWD(group_norm_fwd_wide, (GROUP_WALK_THREADS), group_fwd_walked<T, pack<T>::N>(p, walk, false))
GROUP_FWD(group_norm_fwd_any, (GROUP_WALK_THREADS), group_fwd_walked<T, 1>(p, walk, false))
GROUP_FWD(group_norm_fwd_store_wide, (GROUP_WALK_THREADS), group_fwd_walked<T, pack<T>::N>(p, walk, true))
GROUP_FWD(group_norm_fwd_store_any, (GROUP_WALK_THREADS), group_fwd_walked<T, 1>(p, walk, true))
GROUP_BWD(group_norm_bwd_2, (GROUP_BWD_THREADS), group_bwd_held<T, 2, 4, false>(p, walk))
GROUP_BWD(group_norm_bwd_4, (GROUP_BWD_THREADS), group_bwd_held<T, 4, 3, false>(p, walk))
GROUP_BWD(group_norm_bwd_mixed, (GROUP_BWD_THREADS), group_bwd_held<T, 2, 4, true>(p, walk))
GROUP_BWD(group_norm_bwd_wide, (GROUP_WALK_THREADS), group_bwd_walked<T, pack<T>::N>(p, walk))
GROUP_BWD(group_norm_bwd_any, (GROUP_WALK_THREADS), group_bwd_walked<T, 1>(p, walk))
GROUP_BWD(group_norm_bwd_store_wide, (GROUP_WALK_THREADS), group_bwd_store<T, pack<T>::N>(p, walk))
GROUP_BWD(group_norm_bwd_store_any, (GROUP_WALK_THREADS), group_bwd_store<T, 1>(p, walk))
