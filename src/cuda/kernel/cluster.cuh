/* Clusters: blocks that share a row, each a part of its columns, and read each other's shared memory (sm_90 and later). Elsewhere, and
 * without a cluster in the launch, a block is its own cluster of one. */
#ifndef TIGON_CUDA_KERNEL_CLUSTER_CUH
#define TIGON_CUDA_KERNEL_CLUSTER_CUH

#include <cooperative_groups.h>

#include "cuda/kernel/team.cuh"

struct cluster {
  int rank, size;
};

__device__ static inline cluster cluster_of_block() {
#if __CUDA_ARCH__ >= 900
  const cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
  return cluster{(int)group.block_rank(), (int)group.num_blocks()};
#else
  return cluster{0, 1};
#endif
}

template <int VALUES> struct cluster_space { float of[2][VALUES]; };

/* After team_all(), of teams that are whole blocks: this block's share of the values of a turn, which cluster_take() then combines in
 * the order of the ranks. Every give is followed by its take, and what stands between the two is hidden behind the cluster's barrier. */
template <int VALUES>
__device__ inline void cluster_give(const cluster &c, cluster_space<VALUES> &space, int turn,
                                    const float (&v)[VALUES]) {
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) space.of[turn][i] = v[i];
  }
#if __CUDA_ARCH__ >= 900
  if (c.size > 1) cooperative_groups::this_cluster().barrier_arrive();
#endif
}
template <class Op, int VALUES>
__device__ inline void cluster_take(const cluster &c, cluster_space<VALUES> &space, int turn, float (&v)[VALUES]) {
#if __CUDA_ARCH__ >= 900
  cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
  if (c.size > 1) {
    group.barrier_wait();
#pragma unroll
    for (int i = 0; i < VALUES; ++i) {
      v[i] = *group.map_shared_rank(&space.of[turn][i], 0);
      for (int b = 1; b < c.size; ++b) v[i] = Op::of(v[i], *group.map_shared_rank(&space.of[turn][i], b));
    }
    return;
  }
#endif
  __syncthreads();
#pragma unroll
  for (int i = 0; i < VALUES; ++i) v[i] = space.of[turn][i];
}

/* Both at once. */
template <class Op, int VALUES>
__device__ inline void cluster_all(const cluster &c, cluster_space<VALUES> &space, int turn, float (&v)[VALUES]) {
  if (c.size == 1) return;
  cluster_give(c, space, turn, v);
  cluster_take<Op>(c, space, turn, v);
}

/* At a kernel's end: no block is gone while another reads its shared memory. */
__device__ static inline void cluster_end(const cluster &c) {
#if __CUDA_ARCH__ >= 900
  if (c.size > 1) cooperative_groups::this_cluster().sync();
#endif
}

#endif
