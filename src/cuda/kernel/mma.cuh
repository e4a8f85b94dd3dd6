/* The tensor cores from sm_80 on: m16n8k16 products of 16-bit elements with f32 sums, the loads of their operands from
 * shared memory and the copies that bring them there. Names are those of PTX. */
#ifndef TIGON_CUDA_KERNEL_MMA_CUH
#define TIGON_CUDA_KERNEL_MMA_CUH

#include "cuda/kernel/element.cuh"

/* Lane 4 g + t has these elements. c: rows g and g + 8, columns 2 t and 2 t + 1. a: the same of columns 0 .. 7, then of 8 .. 15.
 * b: rows 2 t and 2 t + 1, then 2 t + 8 and 2 t + 9, of column g. */
template <class T> __device__ inline void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
#define MMA(T, name)                                                                                                 \
  template <> __device__ inline void mma<T>(float(&c)[4], const unsigned(&a)[4], unsigned b0, unsigned b1) {         \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." name "." name ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
        "{%0, %1, %2, %3};"                                                                                          \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                             \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));                                             \
  }
MMA(f16, "f16")
MMA(bf16, "bf16")
#undef MMA

/* Four 8 x 8 matrices; lanes 8 i .. 8 i + 7 point at the rows of the i-th. */
__device__ static inline void ldmatrix(unsigned (&to)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
__device__ static inline void ldmatrix_trans(unsigned (&to)[4], unsigned at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}

/* The reverse, from sm_90 on: a lane has two elements of a row of each matrix, as mma() has them. */
__device__ static inline void stmatrix(unsigned at, unsigned a, unsigned b, unsigned c, unsigned d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b), "r"(c),
               "r"(d)
               : "memory");
}
__device__ static inline void store_shared_8_bytes(unsigned at, float a, float b) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(a), "f"(b) : "memory");
}
__device__ static inline uint4 load_shared_16_bytes(unsigned at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(at)
               : "memory");
  return v;
}

/* 16 bytes into shared memory, zeros unless `there`; they have come after cp_async_wait() and a barrier. */
__device__ static inline void cp_async(unsigned to, const void *from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(__cvta_generic_to_global(from)),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ static inline void cp_async_wait() { asm volatile("cp.async.wait_all;" ::: "memory"); }
/* The same for all but the last PENDING of what was committed. */
__device__ static inline void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> __device__ inline void cp_async_wait_for() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

/* Bytes of a tile at which a piece of 16 lies, in rows of DIM elements: those of 8 rows at the same column are in different banks. */
template <int DIM> __device__ inline int place_of(int row, int piece) {
  return row * (DIM * 2) + ((piece ^ (row & 7)) << 4);
}

/* Where a lane finds its row for ldmatrix; by_pieces() goes `pieces` on, which are even, and whole eights of rows are added. */
template <int DIM> __device__ inline unsigned lane_place(const void *tile, int row, int piece) {
  return (unsigned)__cvta_generic_to_shared(tile) + place_of<DIM>(row, piece);
}
__device__ static inline unsigned by_pieces(unsigned place, int pieces) { return place ^ (unsigned)(pieces << 4); }

/* Two elements in a register, the first in the low half. */
template <class T> __device__ inline unsigned packed_two(float a, float b);
template <> __device__ inline unsigned packed_two<bf16>(float a, float b) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return *(const unsigned *)&v;
}
template <> __device__ inline unsigned packed_two<f16>(float a, float b) {
  const __half2 v = __floats2half2_rn(a, b);
  return *(const unsigned *)&v;
}
template <class T> __device__ inline float2 unpacked_two(unsigned v);
template <> __device__ inline float2 unpacked_two<bf16>(unsigned v) {
  return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u));
}
template <> __device__ inline float2 unpacked_two<f16>(unsigned v) { return __half22float2(*(const __half2 *)&v); }

#endif
