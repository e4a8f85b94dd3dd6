/* Barriers in shared memory from sm_90 on. Names are those of PTX; `at` is an address there. */
#ifndef TIGON_CUDA_KERNEL_MBARRIER_CUH
#define TIGON_CUDA_KERNEL_MBARRIER_CUH

#include <stdint.h>

__device__ static inline void mbarrier_init(unsigned at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ static inline void mbarrier_arrive(unsigned at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
/* The phase is over when these bytes have come besides. */
__device__ static inline void mbarrier_arrive_expect(unsigned at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}
/* After mbarrier_init(), before the block's or the cluster's barrier: the bulk copy engine and other blocks know the barriers. */
__device__ static inline void mbarriers_are_made() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
/* This thread arrives once its copies have come. */
__device__ static inline void mbarrier_arrive_copied(unsigned at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at) : "memory");
}
/* Until the phase of this parity is over; _cluster: to which another block has arrived, or written. */
#define MBARRIER_WAIT(name, acquires)                                                     \
  __device__ static inline void name(unsigned at, int parity) {                           \
    asm volatile("{\n"                                                                    \
                 ".reg .pred over;\n"                                                     \
                 "again:\n"                                                               \
                 "mbarrier.try_wait.parity" acquires ".shared::cta.b64 over, [%0], %1;\n" \
                 "@over bra done;\n"                                                      \
                 "bra again;\n"                                                           \
                 "done:\n"                                                                \
                 "}" ::"r"(at),                                                           \
                 "r"(parity)                                                              \
                 : "memory");                                                             \
  }
MBARRIER_WAIT(mbarrier_wait, "")
MBARRIER_WAIT(mbarrier_wait_cluster, ".acquire.cluster")
#undef MBARRIER_WAIT

#endif
