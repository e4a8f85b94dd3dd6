/* Two blocks of a cluster that have half each of a tile's sums over queries: one gives away its part of dv, the other of dk. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_PAIR_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_PAIR_CUH

#include "cuda/kernel/attention_ring.cuh"

/* The same place of another block's shared memory. */
__device__ static inline unsigned shared_of_block(unsigned at, int rank) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(rank));
  return there;
}
__device__ static inline void cluster_arrive_and_wait() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
/* A place for what the other block gives away, by threads of all warpgroups: 16 bytes each, then the next 16. */
template <int DIM> struct sums_mail {
  enum { THREADS = ATTENTION_WGMMA_BWD_GROUPS * GROUP, BYTES = THREADS * DIM / 2 * 4 };
  unsigned data, full, taken; /* taken: the other block has read what this one gave */
  int rank, parity;

  __device__ sums_mail(unsigned data_, unsigned barriers, int rank_)
      : data(data_), full(barriers), taken(barriers + BARRIER_BYTES), rank(rank_), parity(0) {}
  __device__ void init() const { mbarrier_init(full, 1), mbarrier_init(taken, THREADS / WARP); }

  /* kept += what the other block gives, which keeps what this one gives. */
  __device__ void exchange(const wgmma_block<DIM> &given, wgmma_block<DIM> &kept) {
    const int thread = (int)threadIdx.x - GROUP;
    const unsigned there = shared_of_block(data, rank ^ 1) + thread * 16, arrived = shared_of_block(full, rank ^ 1);
    if (thread == 0) mbarrier_arrive_expect(full, BYTES);
    mbarrier_wait_cluster(taken, parity ^ 1);
#pragma unroll
    for (int j = 0; j < DIM / 8; ++j)
      asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                       there + j * THREADS * 16),
                   "f"(given.of[j][0]), "f"(given.of[j][1]), "f"(given.of[j][2]), "f"(given.of[j][3]), "r"(arrived)
                   : "memory");
    mbarrier_wait_cluster(full, parity);
#pragma unroll
    for (int j = 0; j < DIM / 8; ++j) {
      float v[4];
      asm volatile("ld.shared::cta.v4.f32 {%0, %1, %2, %3}, [%4];"
                   : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3])
                   : "r"(data + thread * 16 + j * THREADS * 16)
                   : "memory");
#pragma unroll
      for (int e = 0; e < 4; ++e) kept.of[j][e] += v[e];
    }
    __syncwarp();
    if (thread % WARP == 0)
      asm volatile(
          "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(shared_of_block(taken, rank ^ 1))
          : "memory");
    parity ^= 1;
  }
};

#endif
