/* Few plain rows of the norms, backward, in one launch. A team of a cluster has some rows, and each block has a share of their columns. A
 * thread starts all its loads before it waits for any. One barrier joins the sums of all rows. A block sums dw over its columns. With
 * several clusters the last block of a share adds up the slabs, in their order.
 *
 * Loops over rows are not unrolled: a cold call waits 0.2 us for a hundred instructions (docs/lab/rms_norm/cuda.md). */
#ifndef TIGON_CUDA_KERNEL_NORM_BWD_FEW_CUH
#define TIGON_CUDA_KERNEL_NORM_BWD_FEW_CUH

#include "cuda/kernel/norm_bwd.cuh"

/* Whether the block is the last of its share. Each cluster has one block per share. A ticket has one count per rank, and the last block
 * leaves it 0. */
__device__ static inline bool norm_few_last(const norm_few &p, int rank) {
  const int bits = NORM_FEW_COUNTS >> p.cluster_bits, shift = rank * bits;
  __threadfence();
  const bool last = (atomicAdd(p.ticket, 1u << shift) >> shift & ~0u >> (32 - bits)) == p.clusters - 1u;
  if (last) {
    atomicSub(p.ticket, (unsigned)p.clusters << shift);
    __threadfence();
  }
  return last;
}

/* The cluster's barrier, in two halves. The first one announces that the block has begun. Cooperative groups would read more constants. */
__device__ static inline void norm_few_begins(int blocks) {
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;");
#endif
}
__device__ static inline void norm_few_begun(int blocks) {
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
__device__ static inline void norm_few_sync(int blocks) {
#if __CUDA_ARCH__ >= 900
  if (blocks > 1) {
    asm volatile("barrier.cluster.arrive.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
    return;
  }
#endif
  __syncthreads();
}
/* The value at the same address in block `rank` of the cluster. */
__device__ static inline float *norm_few_of(float *here, int rank) {
#if __CUDA_ARCH__ >= 900
  return cooperative_groups::this_cluster().map_shared_rank(here, rank);
#else
  return here;
#endif
}

template <class T, norm_kind KIND> __device__ inline void norm_bwd_few(const norm_few &p) {
  constexpr int N = pack<T>::N, AT_ONCE = 8;
  constexpr bool CENTERS = KIND == NORM_LAYER, ADDS = KIND == NORM_ADD_RMS;
  constexpr int VALUES = CENTERS ? 2 : 1, STREAMS = ADDS ? 3 : 2, BLOCK = NORM_FEW_THREADS;
  const int blocks = 1 << p.cluster_bits, block = (int)blockIdx.x & (blocks - 1);
  norm_few_begins(blocks);
  const int threads = 1 << p.team_bits, teams = BLOCK >> p.team_bits, lane = (int)threadIdx.x % WARP;
  const int rank = (int)threadIdx.x & (threads - 1), index = (int)threadIdx.x >> p.team_bits;
  const int width = threads * N, first = block * width, c = first + rank * N;
  const int slab = (int)blockIdx.x >> p.cluster_bits, row = slab + index * p.clusters, step = p.clusters * teams;
  const bool has = c < p.cols;
  const bool rounds = !CENTERS && norm_rounds<T>((tigon_casting)p.casting);

  /* Shared memory: [each][STREAMS][BLOCK] packs, [VALUES][BLOCK * N] sums of columns by team, [each][VALUES][posts] sums of rows by team,
   * block and warp. */
  uint4 *const own = norm_stages + threadIdx.x;
  float *const columns = (float *)(norm_stages + p.each * STREAMS * BLOCK);
  const int warps = threads / WARP, parts = warps << p.cluster_bits, posts = BLOCK / WARP << p.cluster_bits;
  float *const posted = columns + VALUES * BLOCK * N + index * parts;

  uint4 *to = own;
#pragma unroll 1
  for (int r = row; r < p.rows && has; r += step, to += STREAMS * BLOCK) {
    __pipeline_memcpy_async(to, (const T *)p.dy + r * p.dy_pitch + c, 16);
    __pipeline_memcpy_async(to + BLOCK, (const T *)p.x + r * p.x_pitch + c, 16);
    if (ADDS) __pipeline_memcpy_async(to + 2 * BLOCK, (const T *)p.ds + r * p.ds_pitch + c, 16);
  }
  __pipeline_commit();
  const int of_lane = row + lane * step; /* the lane has rstd and mean of this row */
  const float rstds = of_lane < p.rows ? p.rstd[of_lane] : 0;
  const float centers = CENTERS && of_lane < p.rows ? p.mean[of_lane] : 0;
  uint4 weights = {0, 0, 0, 0};
  if (p.w && has) weights = *(const uint4 *)((const T *)p.w + c);
  float w[N];
  unpack(pack_of<T>(weights), w);
#pragma unroll
  for (int j = 0; j < N; ++j) w[j] += p.w_offset;

  /* Calls f(k, r, rstd, center) for the team's rows r. */
  auto each_row = [&](auto f) {
#pragma unroll 1
    for (int k = 0, r = row; r < p.rows; ++k, r += step)
      f(k, r, __shfl_sync(0xffffffffu, rstds, k), CENTERS ? __shfl_sync(0xffffffffu, centers, k) : 0);
  };
  /* dy and xhat of a row. */
  auto unpack_row = [&](int k, float rstd, float center, float(&a)[N], float(&xhat)[N]) {
    unpack(pack_of<T>(own[k * STREAMS * BLOCK]), a);
    unpack(pack_of<T>(own[(k * STREAMS + 1) * BLOCK]), xhat);
#pragma unroll
    for (int j = 0; j < N; ++j) xhat[j] = (CENTERS ? xhat[j] - center : xhat[j]) * rstd;
  };

  float dw[N] = {0}, db[N] = {0};
  float *const post = norm_few_of(posted + block * warps + rank / WARP, lane & (blocks - 1));
  norm_few_begun(blocks);
  __pipeline_wait_prior(0);
  each_row([&](int k, int, float rstd, float center) {
    float sums[VALUES] = {0}; /* sums of g * xhat and of g */
    if (has) {
      float a[N], xhat[N];
      unpack_row(k, rstd, center, a, xhat);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const float g = a[j] * w[j];
        norm_gradient<KIND>::add(g, xhat[j], sums);
        if constexpr (CENTERS) db[j] += a[j];
      }
      norm_round<T>(xhat, rounds);
#pragma unroll
      for (int j = 0; j < N; ++j) dw[j] = fmaf(a[j], xhat[j], dw[j]);
    }
#pragma unroll
    for (int v = 0; v < VALUES; ++v) {
      sums[v] = warp_all<op_sum>(sums[v]);
      if (lane < blocks) post[(k * VALUES + v) * posts] = sums[v];
    }
  });
#pragma unroll
  for (int j = 0; j < N; j += 4) {
    float4 *const at = (float4 *)&columns[threadIdx.x * N + j];
    at[0] = make_float4(dw[j], dw[j + 1], dw[j + 2], dw[j + 3]);
    if constexpr (CENTERS) at[BLOCK * N / 4] = make_float4(db[j], db[j + 1], db[j + 2], db[j + 3]);
  }
  norm_few_sync(blocks);

  each_row([&](int k, int r, float rstd, float center) {
    float sums[VALUES] = {0};
#pragma unroll 1
    for (int part = lane; part < parts; part += WARP)
#pragma unroll
      for (int v = 0; v < VALUES; ++v) sums[v] += posted[(k * VALUES + v) * posts + part];
#pragma unroll
    for (int v = 0; v < VALUES; ++v) sums[v] = warp_all<op_sum>(sums[v]);
    if (!has) return;
    const norm_gradient<KIND> gradient(rstd, sums, p.share);
    float a[N], xhat[N], ds[N], out[N];
    unpack_row(k, rstd, center, a, xhat);
    if (ADDS) unpack(pack_of<T>(own[(k * STREAMS + 2) * BLOCK]), ds);
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = gradient.dx(a[j] * w[j], xhat[j], ADDS ? ds[j] : 0);
    store_pack((T *)p.dx + r * p.dx_pitch + c, packed<T>(out));
  });
  if (!p.dw && !(CENTERS && p.db)) return;

  /* Adds the block's columns from its teams into its slab. The last block then adds the slabs. A single cluster has no slabs. */
  const int left = p.cols - first, count = left < width ? left : width;
#pragma unroll 1
  for (bool joins = true;; joins = false) {
    const float *from = joins ? columns : p.slabs + first;
    const int terms = joins ? teams : p.clusters, apart = joins ? width : VALUES * p.cols;
    const int next = joins ? BLOCK * N : p.cols; /* value */
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < count; i += BLOCK) {
      float sums[VALUES] = {0};
#pragma unroll 1
      for (int term = 0; term < terms; term += AT_ONCE) {
        float of[VALUES][AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k)
#pragma unroll
          for (int v = 0; v < VALUES; ++v) of[v][k] = term + k < terms ? from[v * next + (term + k) * apart + i] : 0;
#pragma unroll
        for (int k = 0; k < AT_ONCE; ++k)
#pragma unroll
          for (int v = 0; v < VALUES; ++v) sums[v] += of[v][k];
      }
#pragma unroll 1
      for (int v = 0; v < VALUES; ++v) {
        const float sum = v == 0 ? sums[0] : sums[VALUES - 1];
        void *out = v == 0 ? p.dw : p.db;
        const tigon_dtype dtype = (tigon_dtype)(v == 0 ? p.dw_dtype : p.db_dtype);
        if (joins && p.clusters > 1)
          p.slabs[(slab * VALUES + v) * p.cols + first + i] = sum;
        else if (out)
          store_any(out, first + i, dtype, p.accumulate ? sum + load_any(out, first + i, dtype) : sum);
      }
    }
    if (!joins || p.clusters == 1) return;
    __syncthreads(); /* the slab is written */
    if (!__syncthreads_or(threadIdx.x == 0 && norm_few_last(p, block))) return;
  }
}

#endif
