/* Products of a warpgroup with 64 or 128 columns, for attention: the first operand from shared memory or from registers. */
#ifndef TIGON_CUDA_KERNEL_WGMMA_COLUMNS_CUH
#define TIGON_CUDA_KERNEL_WGMMA_COLUMNS_CUH

#include "cuda/kernel/wgmma.cuh"

/* Sums of 64 rows; a warp has 16 of them, in the layout of mma(). */
template <int COLUMNS> struct wgmma_block { float of[COLUMNS / 8][4]; };

/* No sum is read before here, or written after. */
template <int COLUMNS> __device__ inline void wgmma_keep(wgmma_block<COLUMNS> &c) {
#pragma unroll
  for (int j = 0; j < COLUMNS / 8; ++j)
    asm volatile("" : "+f"(c.of[j][0]), "+f"(c.of[j][1]), "+f"(c.of[j][2]), "+f"(c.of[j][3])::"memory");
}

/* c = a b of 16 terms, or c += a b; both by rows. */
template <class T> __device__ inline void wgmma_rows(wgmma_block<64> &c, uint64_t a, uint64_t b, int adds);
template <class T> __device__ inline void wgmma_rows(wgmma_block<128> &c, uint64_t a, uint64_t b, int adds);
/* The same, both by terms. */
template <class T> __device__ inline void wgmma_both_terms(wgmma_block<64> &c, uint64_t a, uint64_t b, int adds);
/* c += a b of 16 terms; a as mma() has it, b by terms. */
template <class T> __device__ inline void wgmma_terms(wgmma_block<64> &c, const unsigned (&a)[4], uint64_t b);
template <class T> __device__ inline void wgmma_terms(wgmma_block<128> &c, const unsigned (&a)[4], uint64_t b);

#define FOUR(j) "+f"(c.of[j][0]), "+f"(c.of[j][1]), "+f"(c.of[j][2]), "+f"(c.of[j][3])
#define SIXTEEN(j) FOUR(j), FOUR(j + 1), FOUR(j + 2), FOUR(j + 3)
#define OF_64                                                                                        \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define OF_128                                                                                                \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "          \
  "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, " \
  "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"
#define OPCODE(columns, name) "wgmma.mma_async.sync.aligned.m64n" columns "k16.f32." name "." name " "
#define FROM_SHARED_64(T, function, name, by_terms)                                                       \
  template <> __device__ inline void function<T>(wgmma_block<64> & c, uint64_t a, uint64_t b, int adds) { \
    asm volatile("{.reg .pred adds; setp.ne.b32 adds, %34, 0; " OPCODE("64", name) OF_64                  \
                 ", %32, %33, adds, 1, 1, " by_terms ";}"                                                 \
                 : SIXTEEN(0), SIXTEEN(4)                                                                 \
                 : "l"(a), "l"(b), "r"(adds));                                                            \
  }
#define WGMMA_64(T, name)                                                                                     \
  FROM_SHARED_64(T, wgmma_rows, name, "0, 0")                                                                 \
  FROM_SHARED_64(T, wgmma_both_terms, name, "1, 1")                                                           \
  template <> __device__ inline void wgmma_terms<T>(wgmma_block<64> & c, const unsigned(&a)[4], uint64_t b) { \
    asm volatile("{.reg .pred adds; setp.ne.b32 adds, 1, 0; " OPCODE("64", name) OF_64                        \
                 ", {%32, %33, %34, %35}, %36, adds, 1, 1, 1;}"                                               \
                 : SIXTEEN(0), SIXTEEN(4)                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                       \
  }
#define WGMMA_128(T, name)                                                                                            \
  template <> __device__ inline void wgmma_rows<T>(wgmma_block<128> & c, uint64_t a, uint64_t b, int adds) {          \
    asm volatile("{.reg .pred adds; setp.ne.b32 adds, %66, 0; " OPCODE("128", name) OF_128 ", %64, %65, adds, 1, 1, " \
                                                                                           "0, 0;}"                   \
                 : SIXTEEN(0), SIXTEEN(4), SIXTEEN(8), SIXTEEN(12)                                                    \
                 : "l"(a), "l"(b), "r"(adds));                                                                        \
  }                                                                                                                   \
  template <> __device__ inline void wgmma_terms<T>(wgmma_block<128> & c, const unsigned(&a)[4], uint64_t b) {        \
    asm volatile("{.reg .pred adds; setp.ne.b32 adds, 1, 0; " OPCODE("128", name) OF_128                              \
                 ", {%64, %65, %66, %67}, %68, adds, 1, 1, 1;}"                                                       \
                 : SIXTEEN(0), SIXTEEN(4), SIXTEEN(8), SIXTEEN(12)                                                    \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                               \
  }
WGMMA_64(f16, "f16")
WGMMA_64(bf16, "bf16")
WGMMA_128(f16, "f16")
WGMMA_128(bf16, "bf16")
#undef WGMMA_128
#undef WGMMA_64
#undef FROM_SHARED_64
#undef OPCODE
#undef OF_128
#undef OF_64
#undef SIXTEEN
#undef FOUR

#endif
