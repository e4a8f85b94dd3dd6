/* The products of attention in 16-bit dtypes: a warp has 16 rows of a side and meets COLS rows of the other at a time.
 * Tiles lie in shared memory as the caller's elements, in rows of DIM; scores stay in registers, where weights are operands
 * as they lie.
 *
 * By default a weight is rounded to an element. An exact one is split in two, or three in bf16 where the warp's tile is masked: 16, 22
 * (f16) and 24 of its bits. What two leave is as good as random, and in the sum of the many weights that a row of a full tile has,
 * small beside the bounds (docs/lab/attention/cuda.md). Those of f16 are scaled by a power of two for each row of a tile.
 * Sums run over 64 terms at most from 0 and are then added to what was there. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_MMA_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_MMA_CUH

#include <type_traits>

#include "cuda/kernel/attention_math.cuh"
#include "cuda/kernel/mma.cuh"

/* Row r of the warp's sees the columns [r + low, r + high) that there are. */
struct warp_mask {
  int low, high, cols;
  bool masked, empty; /* not every row sees every column; none sees any */

  __device__ int begin(int r) const { return max(r + low, 0); }
  __device__ int end(int r) const { return min(r + high, cols); }
};

template <int COLS> __device__ inline warp_mask warp_mask_of(const band &b, int64_t x0, int64_t y0, int64_t n) {
  const int low = (int)clamp64(x0 + b.low - y0, -2 * TILE, 2 * TILE);
  const int high = (int)clamp64(x0 + b.high - y0, -2 * TILE, 2 * TILE);
  const int cols = n - y0 < COLS ? (int)(n - y0) : COLS;
  return warp_mask{low, high, cols, low + 15 > 0 || high < COLS || cols < COLS, high + 15 <= 0 || low >= cols};
}

/* `rows` rows of a head, of ROWS that the tile has, by THREADS; all else is 0. */
template <class T, int DIM, int ROWS, int THREADS>
__device__ inline void fetch_tile(T *to, const head<T> &from, int64_t row0, int64_t rows, bool wide) {
  enum { PIECES = DIM / 8, STEP = THREADS / PIECES };
  static_assert(ROWS % STEP == 0 && STEP % 8 == 0, "a tile is whole steps of the block, each as the first");
  const int tid = (int)threadIdx.x, there = rows < ROWS ? (int)rows : ROWS;
  if (wide) {
    const int piece = tid % PIECES, mine = piece * 8 < from.width ? there - tid / PIECES : 0;
    const unsigned place = lane_place<DIM>(to, tid / PIECES, piece);
    const T *at = from.data + (row0 + tid / PIECES) * from.pitch + piece * 8;
#pragma unroll
    for (int r = 0; r < ROWS; r += STEP, at += STEP * from.pitch) cp_async(place + r * DIM * 2, at, r < mine);
  } else {
#pragma unroll 1
    for (int i = tid; i < ROWS * DIM; i += THREADS) {
      const int r = i / DIM, c = i % DIM;
      to[place_of<DIM>(r, c / 8) / 2 + c % 8] =
          r < there && c < from.width ? from.data[(row0 + r) * from.pitch + c] : from_f32<T>(0);
    }
  }
}

/* Members as in attention_math.cuh, of 16 rows from `first` on. */
template <class T_, int DIM_, int COLS_> struct mma_math {
  typedef T_ T;
  enum { DIM = DIM_, COLS = COLS_, R = 2, C = COLS / 4, OUT = DIM / 4, LANES = 4, KS = COLS / 16 };
  static constexpr bool HALVES = std::is_same<T, f16>::value;
  int first, lane, g, t;
  bool exact;

  __device__ explicit mma_math(bool exact_)
      : first((int)threadIdx.x / WARP * 16), lane((int)threadIdx.x % WARP), exact(exact_) {
    g = lane / 4, t = lane % 4;
  }
  __device__ int row(int i) const { return first + g + 8 * i; }
  __device__ int col(int j) const { return j / 2 * 8 + 2 * t + j % 2; }
  __device__ int out(int j) const { return col(j); }
  /* exp of a v that is at most 0, except for rounding: within 3 eps, and 2 eps of v. */
  __device__ static float exp(float v) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(v * 1.44269504f));
    return e;
  }

  /* s = a . b, of the warp's rows of a and all of b. */
  __device__ void scores(const T *a, const T *b, float (&s)[R][C]) const {
    const unsigned a0 = lane_place<DIM>(a, first + lane % 16, lane / 16);
    const unsigned b0 = lane_place<DIM>(b, lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int k0 = 0; k0 < DIM; k0 += TILE) {
      unsigned u[TILE / 16][4];
#pragma unroll
      for (int k = 0; k < TILE / 16; ++k) ldmatrix(u[k], by_pieces(a0, k0 / 8 + 2 * k));
#pragma unroll
      for (int n0 = 0; n0 < COLS; n0 += 32) {
        float part[4][4] = {};
#pragma unroll
        for (int k = 0; k < TILE / 16; ++k)
#pragma unroll
          for (int n = 0; n < 4; n += 2) {
            unsigned v[4];
            ldmatrix(v, by_pieces(b0, k0 / 8 + 2 * k) + (n0 + 8 * n) * DIM * 2);
            mma<T>(part[n], u[k], v[0], v[1]);
            mma<T>(part[n + 1], u[k], v[2], v[3]);
          }
#pragma unroll
        for (int n = 0; n < 4; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            float &sum = s[e / 2][(n0 / 8 + n) * 2 + e % 2];
            sum = k0 == 0 ? part[n][e] : sum + part[n][e];
          }
      }
    }
  }

  /* Where 16 bits of a weight are too few, or an Inf or NaN of b must not meet a weight that is not there. */
  __device__ void gather_carefully(const float (&w)[R][C], const T *b, const int (&begin)[R], const int (&end)[R],
                                   const float (&factor)[R], float (&acc)[R][OUT]) const {
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < OUT; ++j) acc[i][j] *= factor[i];
#pragma unroll 1
    for (int k = 0; k < COLS; ++k) {
      float f[R];
      weights_of(k, g, w, f);
#pragma unroll
      for (int j = 0; j < OUT; ++j) {
        const float v = to_f32(b[place_of<DIM>(k, j / 2) / 2 + 2 * t + j % 2]);
#pragma unroll
        for (int i = 0; i < R; ++i)
          if (k >= begin[i] && k < end[i]) acc[i][j] = fmaf(f[i], v, acc[i][j]);
      }
    }
  }

  /* The power of two that brings the largest of row i to 2^14, and its inverse. */
  __device__ void unit_of(const float (&w)[C], float *unit, float *inverse) const {
    float top = 0;
#pragma unroll
    for (int j = 0; j < C; ++j) top = fmaxf(top, fabsf(w[j]));
    top = lanes_all<op_number_max, LANES>(top);
    const unsigned exponent = max(__float_as_uint(top) >> 23, 15u);
    *unit = __uint_as_float((268 - exponent) << 23), *inverse = __uint_as_float((exponent - 14) << 23);
  }

  template <int PARTS>
  __device__ void gather_split(const float (&w)[R][C], const T *b, const float (&factor)[R],
                               float (&acc)[R][OUT]) const {
    unsigned parts[PARTS][KS][4];
    float unit[R] = {1, 1}, inverse[R] = {1, 1};
    if (HALVES) unit_of(w[0], &unit[0], &inverse[0]), unit_of(w[1], &unit[1], &inverse[1]);
#pragma unroll
    for (int k = 0; k < KS; ++k)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float2 left = make_float2(w[e % 2][4 * k + e / 2 * 2], w[e % 2][4 * k + e / 2 * 2 + 1]);
        if (HALVES) left.x *= unit[e % 2], left.y *= unit[e % 2];
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
          parts[p][k][e] = packed_two<T>(left.x, left.y);
          const float2 taken = unpacked_two<T>(parts[p][k][e]);
          left.x -= taken.x, left.y -= taken.y;
        }
      }
    const unsigned b0 = lane_place<DIM>(b, lane % 16, lane / 16);
#pragma unroll
    for (int n0 = 0; n0 < DIM; n0 += 32) {
      float part[4][4] = {};
#pragma unroll
      for (int k = 0; k < KS; ++k) {
        unsigned v[2][4];
#pragma unroll
        for (int n = 0; n < 2; ++n) ldmatrix_trans(v[n], by_pieces(b0, n0 / 8 + 2 * n) + 16 * k * DIM * 2);
#pragma unroll
        for (int p = PARTS - 1; p >= 0; --p)
#pragma unroll
          for (int n = 0; n < 4; ++n) mma<T>(part[n], parts[p][k], v[n / 2][n % 2 * 2], v[n / 2][n % 2 * 2 + 1]);
      }
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float &sum = acc[e / 2][(n0 / 8 + n) * 2 + e % 2];
          sum = fmaf(sum, factor[e / 2], HALVES ? part[n][e] * inverse[e / 2] : part[n][e]);
        }
    }
  }

  /* acc = acc * factor + w . b */
  __device__ void gather(const float (&w)[R][C], const T *b, const warp_mask &mask, bool careful, const int (&begin)[R],
                         const int (&end)[R], const float (&factor)[R], float (&acc)[R][OUT]) const {
    if (careful)
      gather_carefully(w, b, begin, end, factor, acc);
    else if (!exact)
      gather_split<1>(w, b, factor, acc);
    else if (!HALVES && mask.masked)
      gather_split<3>(w, b, factor, acc);
    else
      gather_split<2>(w, b, factor, acc);
  }
};

#endif
