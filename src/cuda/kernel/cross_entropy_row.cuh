/* Rows of cross_entropy: how their columns lie in 16-byte packs, and how the threads, warps and blocks that share a row put
 * together what each has found. */
#ifndef TIGON_CUDA_KERNEL_CROSS_ENTROPY_ROW_CUH
#define TIGON_CUDA_KERNEL_CROSS_ENTROPY_ROW_CUH

#include <cuda_pipeline.h>

#include "cuda/kernel/cluster.cuh"
#include "cuda/kernel/cross_entropy_totals.cuh"

/* ---- packs ---- */

/* A pack is 16 bytes of elements, kept as a uint4. A row of any width and place, in the packs that memory is aligned to. Pack i
 * has the columns from i * N - shift on. So the first and the last pack may be parts. */
template <class T> struct row_packs {
  T *row;
  int64_t cols, count;
  int shift;

  __device__ int64_t column(int64_t i) const { return i * pack<T>::N - shift; }
  __device__ bool whole(int64_t i) const { return column(i) >= 0 && column(i) + pack<T>::N <= cols; }
};

template <class T>
__device__ inline row_packs<T> packs_of(const tigon_row_space &space, const tigon_rows &t, int64_t r, int64_t cols) {
  T *row = row_of<T>(space, t, r);
  const int shift = (int)((uintptr_t)row % 16 / sizeof(T));
  return row_packs<T>{row, cols, (shift + cols + pack<T>::N - 1) / pack<T>::N, shift};
}

/* One element on: the first one leaves, and `in` becomes the last. A loop of it keeps the rare parts of a pack small. */
template <class T> __device__ inline void shift_in(uint4 &v, T in) {
  if constexpr (sizeof(T) == 4) {
    v = make_uint4(v.y, v.z, v.w, __float_as_uint(in));
  } else {
    const unsigned last = *(const uint16_t *)&in;
    v = make_uint4(__funnelshift_r(v.x, v.y, 16), __funnelshift_r(v.y, v.z, 16), __funnelshift_r(v.z, v.w, 16),
                   v.w >> 16 | last << 16);
  }
}

/* Pack i of a row; what lies outside of the row is -Inf. */
template <class T> __device__ inline uint4 load_part(const row_packs<T> &x, int64_t i) {
  uint4 bits = {0, 0, 0, 0};
  const int64_t first = x.column(i);
#pragma unroll 1
  for (int j = 0; j < pack<T>::N; ++j)
    shift_in<T>(bits, first + j >= 0 && first + j < x.cols ? x.row[first + j] : from_f32<T>(-INFINITY));
  return bits;
}
template <class T> __device__ inline uint4 load_pack(const row_packs<T> &x, int64_t i) {
  return x.whole(i) ? *(const uint4 *)(x.row + x.column(i)) : load_part(x, i);
}
/* On its way to `to`. */
template <class T> __device__ inline void fetch_pack(uint4 *to, const row_packs<T> &x, int64_t i) {
  if (x.whole(i))
    __pipeline_memcpy_async(to, x.row + x.column(i), 16);
  else
    *to = load_part(x, i);
}
/* Pack i of x's columns goes to the same columns of `to`, whose packs may lie otherwise. */
template <class T>
__device__ inline void store_pack(const row_packs<T> &to, const row_packs<T> &x, int64_t i, uint4 bits) {
  const int64_t first = x.column(i);
  if (to.shift == x.shift && x.whole(i)) {
    store_16_bytes(to.row + first, bits);
    return;
  }
#pragma unroll 1
  for (int j = 0; j < pack<T>::N; ++j) {
    if (first + j >= 0 && first + j < x.cols) to.row[first + j] = *(const T *)&bits.x;
    shift_in<T>(bits, from_f32<T>(0));
  }
}

/* ---- what a row's threads agree on ---- */

/* What a warp has found. Each is written once a row, before a barrier of the row's threads, and read after it. */
struct ce_space {
  float4 sums[MOST_WARPS]; /* top, sum, moment, weighted */
  int64_t column[MOST_WARPS];
};

__device__ static inline void row_sync(const team &t, const cluster &cl) {
#if __CUDA_ARCH__ >= 900
  if (cl.size > 1) {
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    return;
  }
#endif
  team_sync(t);
}
/* After the last look at other blocks' memory, and before the kernel's end. */
__device__ static inline void row_leave(const cluster &cl) {
#if __CUDA_ARCH__ >= 900
  if (cl.size > 1) asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ static inline void row_left(const cluster &cl) {
#if __CUDA_ARCH__ >= 900
  if (cl.size > 1) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/* Block `rank`'s copy of what `at` is in this block. */
template <class V> __device__ inline V peer_value(const cluster &cl, V *at, int rank) {
#if __CUDA_ARCH__ >= 900
  if (cl.size > 1) return *cooperative_groups::this_cluster().map_shared_rank(at, rank);
#endif
  return *at;
}

template <bool PLAIN> __device__ inline void warp_sums(const logit_map &map, row_sums &s) {
  s.top = warp_all<op_max>(s.top);
  move_reference<PLAIN>(map, s.top, s);
  s.sum = warp_all<op_sum>(s.sum);
  if (PLAIN) return;
  s.moment = warp_all<op_sum>(s.moment);
  s.weighted = warp_all<op_sum>(s.weighted);
}

/* Each thread's sums become the row's, in one order. */
template <bool PLAIN>
__device__ inline void row_all(const team &t, const cluster &cl, const logit_map &map, ce_space &space, row_sums &s) {
  warp_sums<PLAIN>(map, s);
  const int warps = t.threads / WARP, first = t.index * warps, lane = (int)threadIdx.x % WARP;
  if (warps == 1 && cl.size == 1) {
    __syncwarp(); /* the lead has read the label's logit, which the gradient may lie over */
    return;
  }
  if (lane == 0) space.sums[threadIdx.x / WARP] = make_float4(s.top, s.sum, s.moment, s.weighted);
  row_sync(t, cl);
  row_sums all = no_sums<PLAIN>(map);
  for (int i = lane; i < warps * cl.size; i += WARP) {
    const float4 part = peer_value(cl, &space.sums[first + i % warps], i / warps);
    row_sums one = {part.x, 0, exponent_of(logit<PLAIN>(map, part.x)), part.y, part.z, part.w};
    all.top = fmaxf(all.top, part.x);
    move_reference<PLAIN>(map, all.top, all);
    move_reference<PLAIN>(map, all.top, one);
    all.sum += one.sum;
    all.moment += one.moment;
    all.weighted += one.weighted;
  }
  warp_sums<PLAIN>(map, all);
  s = all;
}

/* The smallest of all threads' columns. */
__device__ static inline int64_t row_first(const team &t, const cluster &cl, ce_space &space, int64_t column) {
  const int warps = t.threads / WARP, first = t.index * warps, lane = (int)threadIdx.x % WARP;
  auto smallest = [](int64_t v) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) {
      const int64_t other = __shfl_xor_sync(0xffffffffu, (long long)v, d);
      v = other < v ? other : v;
    }
    return v;
  };
  column = smallest(column);
  if (warps == 1 && cl.size == 1) return column;
  if (lane == 0) space.column[threadIdx.x / WARP] = column;
  row_sync(t, cl);
  for (int i = lane; i < warps * cl.size; i += WARP) {
    const int64_t part = peer_value(cl, &space.column[first + i % warps], i / warps);
    column = part < column ? part : column;
  }
  return smallest(column);
}

/* The first column of a pack that is `wanted`, or a NaN when that is; INT64_MAX: none. */
template <class T>
__device__ inline int64_t find_column(const row_packs<T> &x, int64_t i, const uint4 &v, float wanted) {
  float of[pack<T>::N];
  unpack(pack_of<T>(v), of);
  int64_t found = INT64_MAX;
#pragma unroll
  for (int j = pack<T>::N - 1; j >= 0; --j) {
    const int64_t c = x.column(i) + j;
    if (c >= 0 && c < x.cols && (of[j] == wanted || (wanted != wanted && of[j] != of[j]))) found = c;
  }
  return found;
}

#endif
