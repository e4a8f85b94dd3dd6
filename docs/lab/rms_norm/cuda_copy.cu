/* Study: which way to move memory is fastest; the ceiling of every kernel that reads and writes once. Build and run:
 *   nvcc -std=c++17 -O3 -gencode arch=compute_90,code=sm_90 docs/lab/rms_norm/cuda_copy.cu -o cuda_copy && ./cuda_copy */
#include <cstdio>
#include <cstdint>
#include <vector>

#include "cuda_time.cuh"

enum hint { PLAIN, STREAM, NC_NO_ALLOCATE, EVICT_FIRST, L2_256 };

template <hint H> __device__ inline uint4 load(const uint4 *p) {
  uint4 v;
  if (H == PLAIN) v = *p;
  if (H == STREAM) v = __ldcs(p);
  if (H == NC_NO_ALLOCATE)
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
  if (H == EVICT_FIRST)
    asm volatile("ld.global.L1::evict_first.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
  if (H == L2_256)
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
  return v;
}
template <hint H> __device__ inline void store(uint4 *p, uint4 v) {
  if (H == PLAIN) *p = v;
  if (H == STREAM) __stcs(p, v);
  if (H == NC_NO_ALLOCATE)
    asm volatile("st.global.L1::no_allocate.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w));
  if (H == EVICT_FIRST)
    asm volatile("st.global.L1::evict_first.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w));
  if (H == L2_256) __stwt(p, v);
}

template <hint L, hint S, int PACKS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) copy(const uint4 *x, uint4 *y, int64_t n) {
  for (int64_t at = (int64_t)blockIdx.x * BLOCK * PACKS + threadIdx.x; at < n;
       at += (int64_t)gridDim.x * BLOCK * PACKS) {
    uint4 v[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) v[k] = load<L>(x + at + k * BLOCK);
#pragma unroll
    for (int k = 0; k < PACKS; ++k) store<S>(y + at + k * BLOCK, v[k]);
  }
}

/* Two in, one out, as gates have it: y becomes the sum of two's bits. */
template <hint L, hint S, int PACKS, int BLOCK>
__global__ void __launch_bounds__(BLOCK) two(const uint4 *x, const uint4 *z, uint4 *y, int64_t n) {
  const int64_t at = (int64_t)blockIdx.x * BLOCK * PACKS + threadIdx.x;
  uint4 v[PACKS], w[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) v[k] = load<L>(x + at + k * BLOCK), w[k] = load<L>(z + at + k * BLOCK);
#pragma unroll
  for (int k = 0; k < PACKS; ++k)
    store<S>(y + at + k * BLOCK, uint4{v[k].x ^ w[k].x, v[k].y ^ w[k].y, v[k].z ^ w[k].z, v[k].w ^ w[k].w});
}

/* Bulk copies: a persistent block has STAGES pieces of BYTES in shared memory, in and out by the copy engine alone. */
template <int BYTES, int STAGES> __global__ void bulk(const char *x, char *y, int64_t bytes) {
  extern __shared__ __align__(128) char stage[];
  __shared__ __align__(8) uint64_t full[STAGES];
  if (threadIdx.x != 0) return;
  const uint32_t bars = (uint32_t)__cvta_generic_to_shared(full), base = (uint32_t)__cvta_generic_to_shared(stage);
  for (int s = 0; s < STAGES; ++s) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bars + 8 * s));
  asm volatile("fence.mbarrier_init.release.cluster;");
  asm volatile("fence.proxy.async.shared::cta;");
  const int64_t pieces = bytes / BYTES, step = gridDim.x;
  auto fetch = [&](int64_t piece, int s) {
    if (piece >= pieces) return;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bars + 8 * s), "r"(BYTES));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     base + s * BYTES),
                 "l"(x + piece * BYTES), "r"(BYTES), "r"(bars + 8 * s)
                 : "memory");
  };
  constexpr int AHEAD = STAGES / 2;
  int64_t piece = blockIdx.x, ahead = piece;
  int s_ahead = 0, s = 0, phase = 0;
  for (int i = 0; i < AHEAD; ++i, ahead += step) fetch(ahead, s_ahead++);
  for (; piece < pieces; piece += step) {
    asm volatile("{\n.reg .pred p;\nwait: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra wait;\n}" ::"r"(
                     bars + 8 * s),
                 "r"(phase));
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y + piece * BYTES),
                 "r"(base + s * BYTES), "r"(BYTES)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;");
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(STAGES - AHEAD - 1));
    if (s_ahead == STAGES) s_ahead = 0;
    fetch(ahead, s_ahead++);
    ahead += step;
    if (++s == STAGES) s = 0, phase ^= 1;
  }
  asm volatile("cp.async.bulk.wait_group 0;");
}

enum { SETS = 4 };
static uint4 *x[SETS], *y[SETS];

template <hint L, hint S, int PACKS, int BLOCK> static void go(const char *name, int64_t bytes, int blocks) {
  const int64_t n = bytes / 16;
  const int64_t all = n / (BLOCK * PACKS);
  const double us = median_us(
      [&](int i) { copy<L, S, PACKS, BLOCK><<<blocks ? blocks : all, BLOCK>>>(x[i % SETS], y[i % SETS], n); });
  printf("  %-28s packs %d block %4d grid %-10s %7.2f us %5.0f GB/s\n", name, PACKS, BLOCK,
         blocks ? "persistent" : "all", us, 2e-3 * bytes / us);
}
template <hint L, hint S, int PACKS, int BLOCK> static void go_two(const char *name, int64_t bytes) {
  const int64_t n = bytes / 16;
  const double us = median_us([&](int i) {
    two<L, S, PACKS, BLOCK><<<n / (BLOCK * PACKS), BLOCK>>>(x[i % SETS], x[(i + 1) % SETS], y[i % SETS], n);
  });
  printf("  two in: %-20s packs %d block %4d            %7.2f us %5.0f GB/s\n", name, PACKS, BLOCK, us,
         3e-3 * bytes / us);
}
template <int BYTES, int STAGES> static void go_bulk(int64_t bytes, int blocks) {
  cudaFuncSetAttribute(bulk<BYTES, STAGES>, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES * STAGES);
  const double us = median_us([&](int i) {
    bulk<BYTES, STAGES><<<blocks, 32, BYTES * STAGES>>>((char *)x[i % SETS], (char *)y[i % SETS], bytes);
  });
  printf("  bulk %6d bytes x %2d stages, %d blocks: %7.2f us %5.0f GB/s %s\n", BYTES, STAGES, blocks, us,
         2e-3 * bytes / us, cudaGetErrorString(cudaDeviceSynchronize()));
}

int main() {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int64_t bytes : {16 << 20, 64 << 20, 512 << 20}) {
    for (int i = 0; i < SETS; ++i)
      cudaMalloc(&x[i], bytes), cudaMalloc(&y[i], bytes), cudaMemset(x[i], 0x5a + i, bytes);
    double us = median_us([&](int i) { cudaMemcpyAsync(y[i % SETS], x[i % SETS], bytes, cudaMemcpyDeviceToDevice); });
    printf("%ld MiB: cudaMemcpy %.2f us %.0f GB/s\n", (long)(bytes >> 20), us, 2e-3 * bytes / us);
    go<STREAM, STREAM, 4, 256>("stream, stream", bytes, 0);
    go<PLAIN, PLAIN, 4, 256>("plain, plain", bytes, 0);
    go<PLAIN, PLAIN, 2, 512>("plain, plain", bytes, 0);
    go<PLAIN, STREAM, 4, 256>("plain, stream", bytes, 0);
    go<STREAM, PLAIN, 4, 256>("stream, plain", bytes, 0);
    go<NC_NO_ALLOCATE, PLAIN, 4, 256>("nc no_allocate, plain", bytes, 0);
    go<NC_NO_ALLOCATE, NC_NO_ALLOCATE, 4, 256>("nc no_allocate, no_allocate", bytes, 0);
    go<L2_256, PLAIN, 4, 256>("nc L2::256B, plain", bytes, 0);
    go<L2_256, STREAM, 4, 256>("nc L2::256B, stream", bytes, 0);
    go<EVICT_FIRST, EVICT_FIRST, 4, 256>("evict_first, evict_first", bytes, 0);
    go<PLAIN, PLAIN, 8, 256>("plain, plain", bytes, 0);
    go<PLAIN, PLAIN, 1, 128>("plain, plain", bytes, 0);
    go<PLAIN, PLAIN, 1, 256>("plain, plain", bytes, 0);
    go<PLAIN, PLAIN, 1, 512>("plain, plain", bytes, 0);
    go<PLAIN, PLAIN, 1, 1024>("plain, plain", bytes, 0);
    go<PLAIN, PLAIN, 2, 256>("plain, plain", bytes, 0);
    go<PLAIN, PLAIN, 2, 1024>("plain, plain", bytes, 0);
    go<STREAM, STREAM, 1, 256>("stream, stream", bytes, 0);
    go<STREAM, STREAM, 2, 512>("stream, stream", bytes, 0);
    go<EVICT_FIRST, EVICT_FIRST, 1, 512>("evict_first, evict_first", bytes, 0);
    go_two<PLAIN, PLAIN, 1, 128>("plain, plain", bytes);
    go_two<PLAIN, PLAIN, 1, 256>("plain, plain", bytes);
    go_two<PLAIN, PLAIN, 1, 512>("plain, plain", bytes);
    go_two<PLAIN, PLAIN, 1, 1024>("plain, plain", bytes);
    go_two<PLAIN, PLAIN, 2, 256>("plain, plain", bytes);
    go_two<PLAIN, PLAIN, 2, 512>("plain, plain", bytes);
    go_two<STREAM, STREAM, 1, 256>("stream, stream", bytes);
    go_two<STREAM, STREAM, 1, 512>("stream, stream", bytes);
    go_two<STREAM, STREAM, 2, 256>("stream, stream", bytes);
    go_two<NC_NO_ALLOCATE, NC_NO_ALLOCATE, 1, 512>("no_allocate", bytes);
    go<PLAIN, PLAIN, 4, 256>("plain, plain", bytes, 132 * 8);
    go<PLAIN, PLAIN, 8, 512>("plain, plain", bytes, 132 * 2);
    go_bulk<8192, 8>(bytes, 132);
    go_bulk<16384, 12>(bytes, 132);
    go_bulk<16384, 6>(bytes, 264);
    go_bulk<8192, 12>(bytes, 264);
    for (int i = 0; i < SETS; ++i) cudaFree(x[i]), cudaFree(y[i]);
  }
}
