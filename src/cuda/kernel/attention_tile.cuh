/* Tiles of attention: who sees whom, and how a tile comes into shared memory.
 *
 * A tile is 64 rows of 64 columns of a head in f32, padded with zeros, in rows of ATTENTION_PITCH floats: arithmetic never meets the
 * caller's strides, dtype or width. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_TILE_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_TILE_CUH

#include <math.h>

#include "core/attention_part.h"
#include "cuda/attention.h"
#include "cuda/kernel/element.cuh"

enum { TILE = ATTENTION_TILE, PITCH = ATTENTION_PITCH };

/* Row x of one side sees row y of the other when low <= y - x < high. */
struct band {
  int64_t low, high;
};

/* x are queries, y are keys. */
__device__ static inline band band_of(int64_t tokens, int64_t keys, bool causal, int64_t window) {
  const int64_t shift = keys - tokens, far = tokens + keys;
  return band{window > 0 ? shift - window + 1 : -far, causal ? shift + 1 : window > 0 ? shift + window : far};
}
/* x are keys, y are queries. */
__device__ static inline band band_mirrored(const band &b) { return band{1 - b.high, 1 - b.low}; }

__device__ static inline int64_t clamp64(int64_t v, int64_t low, int64_t high) {
  return v < low ? low : v > high ? high : v;
}
__device__ static inline int tile_count(int64_t n, int64_t at) { return n - at < TILE ? (int)(n - at) : TILE; }

/* The tiles of y that rows x0 .. x0 + count - 1 see: from *begin in steps of TILE below *end. */
__device__ static inline void tile_range(const band &b, int64_t x0, int count, int64_t n, int64_t *begin,
                                         int64_t *end) {
  *begin = clamp64(x0 + b.low, 0, n) / TILE * TILE;
  *end = clamp64(x0 + count - 1 + b.high, 0, n);
}

/* The mask of a pair of tiles: row r sees those of the columns [r + low, r + high) that exist. */
struct tile_mask {
  int low, high, cols;
  bool masked; /* not every row sees every column of TILE */

  __device__ int begin(int r) const { return max(r + low, 0); }
  __device__ int end(int r) const { return min(r + high, cols); }
};

__device__ static inline tile_mask mask_of(const band &b, int64_t x0, int64_t y0, int64_t n) {
  const int low = (int)clamp64(x0 + b.low - y0, -2 * TILE, 2 * TILE);
  const int high = (int)clamp64(x0 + b.high - y0, -2 * TILE, 2 * TILE);
  const int cols = tile_count(n, y0);
  return tile_mask{low, high, cols, low + TILE - 1 > 0 || high < TILE || cols < TILE};
}

/* Four elements that begin on four elements' size. */
template <class T> __device__ inline float4 load_four(const T *at) {
  if constexpr (sizeof(T) == 4) {
    return *(const float4 *)at;
  } else {
    struct alignas(8) four {
      T of[4];
    };
    const uint2 bits = *(const uint2 *)at;
    const four v = *(const four *)&bits;
    return make_float4(to_f32(v.of[0]), to_f32(v.of[1]), to_f32(v.of[2]), to_f32(v.of[3]));
  }
}

/* One head of one batch. */
template <class T> struct head {
  T *data;
  int64_t pitch, width; /* pitch of a token; the head's columns */
};
template <class T>
__device__ inline head<T> head_of(const tigon_heads &t, int64_t batch, int64_t index, int64_t width) {
  return head<T>{(T *)tigon_head(&t, sizeof(T), batch, 0, index), t.token_pitch, width};
}

/* The rows of a part: the first one moves by `first`, and rows are `step` apart. */
template <class T> __device__ inline head<T> narrowed(head<T> of, int64_t first, int64_t step) {
  of.data += first * of.pitch;
  of.pitch *= step;
  return of;
}

/* The part at a place, and its tile there. PLAIN: a call is one part. */
template <bool PLAIN, class P>
__device__ inline tigon_attention_part part_at(const P &p, bool of_keys, int unit, int64_t place, int64_t *tile) {
  if constexpr (PLAIN) {
    *tile = place;
    return tigon_attention_part{0, p.tokens, 0, p.keys, 1};
  } else {
    return tigon_attention_part_at(&p.cuts, of_keys, unit, place, tile);
  }
}

/* Rows [row0, row0 + rows) and columns [TILE * chunk, ...) of a head; is every element finite? By all threads of the block. */
template <class T, int THREADS>
__device__ inline bool load_tile(float *to, const head<T> &from, int64_t row0, int rows, int64_t chunk, bool wide) {
  bool finite = true;
#pragma unroll 4
  for (int v = 0; v < TILE * TILE / 4 / THREADS; ++v) {
    const int place = v * THREADS + (int)threadIdx.x, r = place / (TILE / 4), c = place % (TILE / 4) * 4;
    const int64_t column = chunk * TILE + c;
    float4 x = make_float4(0, 0, 0, 0);
    if (r < rows && column < from.width) {
      const T *at = from.data + (row0 + r) * from.pitch + column;
      if (wide) {
        x = load_four(at);
      } else {
        x.x = to_f32(at[0]);
        if (column + 1 < from.width) x.y = to_f32(at[1]);
        if (column + 2 < from.width) x.z = to_f32(at[2]);
        if (column + 3 < from.width) x.w = to_f32(at[3]);
      }
    }
    finite = finite && fabsf(x.x) < INFINITY && fabsf(x.y) < INFINITY && fabsf(x.z) < INFINITY && fabsf(x.w) < INFINITY;
    *(float4 *)&to[r * PITCH + c] = x;
  }
  return finite;
}

/* The columns of a chunk that there are, in units of 8. */
__device__ static inline int chunk_depth(int64_t width, int64_t chunk) {
  return (tile_count(width, chunk * TILE) + 7) / 8 * 8;
}

/* A thread's part of an output tile, times by[i] in its i-th row; a row is 0 where that is 0. */
template <class M, class T>
__device__ inline void store_tile(const M &m, const head<T> &to, int64_t row0, int rows, int64_t chunk, bool wide,
                                  const float (&acc)[M::R][M::OUT], const float (&by)[M::R]) {
#pragma unroll
  for (int i = 0; i < M::R; ++i) {
    const int r = m.row(i);
    if (r >= rows) continue;
    T *row = to.data + (row0 + r) * to.pitch;
#pragma unroll
    for (int j = 0; j < M::OUT; j += 2) {
      const int64_t c = chunk * TILE + m.out(j);
      struct alignas(2 * sizeof(T)) two {
        T of[2];
      } v = {{from_f32<T>(by[i] == 0 ? 0 : acc[i][j] * by[i]), from_f32<T>(by[i] == 0 ? 0 : acc[i][j + 1] * by[i])}};
      if (wide && c < to.width) {
        *(two *)&row[c] = v;
      } else {
        if (c < to.width) row[c] = v.of[0];
        if (c + 1 < to.width) row[c + 1] = v.of[1];
      }
    }
  }
}

/* KERNEL_BY_DTYPE, where f32 and 16-bit dtypes differ in a block's threads and in the blocks on an SM that registers must be
 * left for. */
#define ATTENTION_KERNEL_OF(element, threads, blocks, name, problem, ...)  \
  extern "C" __global__ void __launch_bounds__(threads, blocks)            \
      name(const __grid_constant__ problem p, const attention_walk walk) { \
    typedef element T;                                                     \
    __VA_ARGS__;                                                           \
  }
#define ATTENTION_F32_KERNEL(name, problem, blocks, ...) \
  ATTENTION_KERNEL_OF(float, ATTENTION_FMA_THREADS, blocks, name##_f32, problem, __VA_ARGS__)
#define ATTENTION_NARROW_KERNEL(name, problem, threads, blocks, ...)          \
  ATTENTION_KERNEL_OF(f16, threads, blocks, name##_f16, problem, __VA_ARGS__) \
  ATTENTION_KERNEL_OF(bf16, threads, blocks, name##_bf16, problem, __VA_ARGS__)
#define ATTENTION_KERNEL(name, problem, f32_blocks, narrow_blocks, ...) \
  ATTENTION_F32_KERNEL(name, problem, f32_blocks, __VA_ARGS__)          \
  ATTENTION_NARROW_KERNEL(name, problem, ATTENTION_TENSOR_THREADS, narrow_blocks, __VA_ARGS__)

#endif
