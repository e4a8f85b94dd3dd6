/* The tensor cores of sm_90a: products of a warpgroup, four warps, whose operands lie in shared memory, and what orders them. Names are
 * those of PTX. */
#ifndef TIGON_CUDA_KERNEL_WGMMA_CUH
#define TIGON_CUDA_KERNEL_WGMMA_CUH

#include "cuda/kernel/mbarrier.cuh"
#include "cuda/kernel/mma.cuh"

/* ---- products ---- */

/* An operand of 64-element rows under a swizzle of 128 bytes. By rows: eights of rows are 1024 bytes apart. By terms: eights of terms are,
 * and 64 columns are `panel` bytes apart. */
__device__ static inline uint64_t wgmma_operand(unsigned at, unsigned panel) {
  const uint64_t swizzle_128 = (uint64_t)1 << 62;
  return swizzle_128 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)(panel >> 4) << 16 | (at & 0x3ffff) >> 4;
}

/* An operand that begins so many bytes on: its address never carries into the upper half. */
__device__ static inline uint64_t operand_on(uint64_t operand, unsigned bytes) {
  return wgmma_operand(0, 0) | ((unsigned)operand + (bytes >> 4));
}

/* What all lanes of a warp have, an address of a stage for instance. The compiler does not see that they agree. It then works each operand
 * out in the lanes' registers, and moves it to the uniform ones between two products. From this number it works them out there. */
__device__ static inline unsigned agreed(unsigned v) {
  unsigned of_all;
  asm volatile("redux.sync.or.b32 %0, %1, 0xffffffff;" : "=r"(of_all) : "r"(v));
  return of_all;
}

/* What was stored, or copied by cp.async, and waited for comes before what the tensor cores read. */
__device__ static inline void wgmma_sees_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ static inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ static inline void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* For all but the last PENDING of what was committed. */
template <int PENDING> __device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* Sums of 64 x 128; a warp has 16 rows, in the layout of mma(). */
typedef float wgmma_sums[16][4];

/* No sum is read before here, or written after. */
__device__ static inline void wgmma_keep(wgmma_sums &c) {
#pragma unroll
  for (int j = 0; j < 16; ++j) asm volatile("" : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])::"memory");
}

/* c += a b of 16 terms. */
template <class T, bool A_BY_TERM, bool B_BY_TERM> __device__ inline void wgmma(wgmma_sums &c, uint64_t a, uint64_t b);

#define FOUR(j) "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
#define SIXTEEN(j) FOUR(j), FOUR(j + 1), FOUR(j + 2), FOUR(j + 3)
#define WGMMA(T, name, a_by_term, b_by_term)                                                                        \
  template <> __device__ inline void wgmma<T, a_by_term, b_by_term>(wgmma_sums & c, uint64_t a, uint64_t b) {       \
    asm volatile(                                                                                                   \
        "{.reg .pred adds; setp.ne.b32 adds, 1, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32." name "." name " {" \
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "           \
        "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
        "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, " \
        "%63}, %64, %65, adds, 1, 1, %66, %67;}"                                                                    \
        : SIXTEEN(0), SIXTEEN(4), SIXTEEN(8), SIXTEEN(12)                                                           \
        : "l"(a), "l"(b), "n"(a_by_term), "n"(b_by_term));                                                          \
  }
#define WGMMAS(T, name) WGMMA(T, name, false, false) WGMMA(T, name, false, true) WGMMA(T, name, true, true)
WGMMAS(f16, "f16")
WGMMAS(bf16, "bf16")
#undef WGMMAS
#undef WGMMA
#undef SIXTEEN
#undef FOUR

/* ---- registers ---- */

/* From here on a thread of this warpgroup has so many. */
template <int COUNT> __device__ inline void registers_fewer() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
}
template <int COUNT> __device__ inline void registers_more() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
}

#endif
