/* Clusters: blocks that share a row, each a part of its columns, and read each other's shared memory (sm_90 and later). Elsewhere, and
 * without a cluster in the launch, a block is its own cluster of one. */
#ifndef TIGON_CUDA_KERNEL_CLUSTER_CUH
#define TIGON_CUDA_KERNEL_CLUSTER_CUH

#include <cooperative_groups.h>

#include "cuda/kernel/mbarrier.cuh"
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

/* What block `rank` has at the same place of its shared memory. All blocks have met before. */
template <class V> __device__ inline V *cluster_box(const cluster &c, V *box, int rank) {
#if __CUDA_ARCH__ >= 900
  if (c.size > 1) return cooperative_groups::this_cluster().map_shared_rank(box, rank);
#endif
  return box;
}

/* __syncthreads() of all blocks. */
__device__ static inline void cluster_meet(const cluster &c) {
#if __CUDA_ARCH__ >= 900
  if (c.size > 1) {
    cooperative_groups::this_cluster().sync();
    return;
  }
#endif
  __syncthreads();
}

template <int VALUES, class V = float> struct cluster_space { V of[2][VALUES]; };

/* After team_all(), of teams that are whole blocks: each of `v` becomes what Op makes of that of all blocks, in the order of the
 * ranks. */
template <class Op, int VALUES, class V>
__device__ inline void cluster_all(const cluster &c, cluster_space<VALUES, V> &space, int turn, V (&v)[VALUES]) {
#if __CUDA_ARCH__ >= 900
  if (c.size == 1) return;
  cooperative_groups::cluster_group group = cooperative_groups::this_cluster();
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) space.of[turn][i] = v[i];
  }
  group.sync();
#pragma unroll
  for (int i = 0; i < VALUES; ++i) {
    v[i] = *group.map_shared_rank(&space.of[turn][i], 0);
    for (int b = 1; b < c.size; ++b) v[i] = Op::of(v[i], *group.map_shared_rank(&space.of[turn][i], b));
  }
#endif
}

/* The same for a loop over rows of blocks of WARPS warps, a power of two, in two steps and without a barrier. Each warp posts
 * its sums to every block of the cluster. The work before all of them are read hides their way. A cluster's barrier would first
 * wait until all that its blocks have stored is in memory, and then empty their L1. `turn` counts the posts from 0 on; at most
 * two are not taken yet, so that a warp that is ahead posts into no box that is still read. */
template <int VALUES, int WARPS> struct cluster_mail {
  enum { BOXES = 4, MOST_BLOCKS = 8 };
  uint64_t arrived[BOXES]; /* mbarriers */
  float of[BOXES][VALUES][MOST_BLOCKS][WARPS];
};

__device__ static inline uint32_t shared_address(const void *at) { return (uint32_t)__cvta_generic_to_shared(at); }

#if __CUDA_ARCH__ >= 900
/* What block `rank` has at the same place of its shared memory. */
__device__ static inline uint32_t shared_address(const void *at, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(at)), "r"(rank));
  return there;
}

/* v to the same place of block `rank`, where its bytes count at the barrier. It needs a cluster in the launch. */
__device__ static inline void cluster_send(const float *to, float v, const uint64_t &barrier, int rank) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(shared_address(to, rank)),
      "f"(v), "r"(shared_address(&barrier, rank))
      : "memory");
}
__device__ static inline void cluster_send(const int *to, int v, const uint64_t &barrier, int rank) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];" ::"r"(shared_address(to, rank)),
      "r"(v), "r"(shared_address(&barrier, rank))
      : "memory");
}
#endif

template <int VALUES, int WARPS>
__device__ inline void cluster_mail_open(const cluster &c, cluster_mail<VALUES, WARPS> &mail) {
#if __CUDA_ARCH__ >= 900
  if (threadIdx.x == 0) {
    for (uint64_t &arrived : mail.arrived) mbarrier_init(shared_address(&arrived), c.size > 1 ? 1 : WARPS);
    mbarriers_are_made();
  }
  cooperative_groups::this_cluster().sync();
#endif
}

/* Until the barrier's phase, 0 or 1, is over. */
__device__ static inline void await_phase(const uint64_t &barrier, uint32_t phase) {
#if __CUDA_ARCH__ >= 900
  for (uint32_t done = 0; !done;)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done)
                 : "r"(shared_address(&barrier)), "r"(phase)
                 : "memory");
#endif
}

/* Each of `v` is the warp's, in all of its lanes. */
template <int VALUES, int WARPS>
__device__ inline void cluster_post(const cluster &c, cluster_mail<VALUES, WARPS> &mail, int turn,
                                    const float (&v)[VALUES]) {
#if __CUDA_ARCH__ >= 900
  const int box = turn % mail.BOXES, warp = (int)threadIdx.x / WARP, to = (int)threadIdx.x % WARP;
  const uint32_t arrived = shared_address(&mail.arrived[box]);
  if (c.size == 1) {
    for (int i = 0; i < VALUES && to == 0; ++i) mail.of[box][i][0][warp] = v[i];
    if (to == 0) mbarrier_arrive(arrived);
    return;
  }
  if (threadIdx.x == 0) mbarrier_arrive_expect(arrived, c.size * WARPS * VALUES * (int)sizeof(float));
  if (to >= c.size) return;
#pragma unroll
  for (int i = 0; i < VALUES; ++i) cluster_send(&mail.of[box][i][c.rank][warp], v[i], mail.arrived[box], to);
#endif
}

template <class Op, int VALUES, int WARPS>
__device__ inline void cluster_take(const cluster &c, cluster_mail<VALUES, WARPS> &mail, int turn, float (&v)[VALUES]) {
#if __CUDA_ARCH__ >= 900
  const int box = turn % mail.BOXES, lane = (int)threadIdx.x % WARPS;
  await_phase(mail.arrived[box], turn / mail.BOXES & 1);
#pragma unroll
  for (int i = 0; i < VALUES; ++i) {
    v[i] = mail.of[box][i][0][lane];
#pragma unroll 1
    for (int b = 1; b < c.size; ++b) v[i] = Op::of(v[i], mail.of[box][i][b][lane]);
#pragma unroll
    for (int d = WARPS / 2; d > 0; d /= 2) v[i] = Op::of(v[i], __shfl_xor_sync(0xffffffffu, v[i], d));
  }
#endif
}

/* At a kernel's end: no block is gone while another is at its shared memory. */
__device__ static inline void cluster_end(const cluster &c) {
  if (c.size > 1) cluster_meet(c);
}

#endif
