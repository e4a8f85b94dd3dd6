/* The bulk copy engine from sm_90 on: boxes of a tensor, as its map (cuda/tensor_map.h) has them, go to shared memory. Names are those of
 * PTX.
 *
 * One thread loads; a box begins on 1024 bytes. Its bytes count at an mbarrier that expects them:
 *     mbarrier_arrive_expect(full, bytes); tma_load(to, map, full, x, y); */
#ifndef TIGON_CUDA_KERNEL_TMA_CUH
#define TIGON_CUDA_KERNEL_TMA_CUH

#include "cuda/driver.h"
#include "cuda/kernel/wgmma.cuh"

/* The map is on its way. */
__device__ static inline void tma_prefetch(const cu_tensor_map &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/* The box whose first element is at these coordinates, the innermost first. */
__device__ static inline void tma_load(unsigned to, const cu_tensor_map &map, unsigned barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
          "r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
__device__ static inline void tma_load(unsigned to, const cu_tensor_map &map, unsigned barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::
          "r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ static inline void tma_load(unsigned to, const cu_tensor_map &map, unsigned barrier, int x, int y, int z,
                                       int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2];" ::"r"(to),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}

#endif
