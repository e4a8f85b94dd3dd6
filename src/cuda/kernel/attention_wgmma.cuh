/* What a warpgroup of attention's forward does with its 64 queries, in 16-bit dtypes on sm_90a: scores, weights and their product with
 * the values, tile by tile of keys. Weights are elements of the caller's dtype, operand A of the second product as they lie in registers. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_WGMMA_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_WGMMA_CUH

#include "cuda/kernel/attention_ring.cuh"

typedef tigon_attention_fwd_problem attention_problem;

enum { KEYS = ATTENTION_WGMMA_KEYS };

/* A thread's rows of the scores: which columns they see, and the sum of their weights, of this thread's columns. Weights are exp2(z - max),
 * where max is the largest score, in base 2, or was so until ones of at most GROWTH more came: sums then need no new factor. */
enum { GROWTH = 8 };
struct lane_rows {
  int begin[2], end[2];
  float max[2], sum[2], factor[2]; /* factor: what earlier sums are multiplied by */
};

/* The weights of a tile's scores as operand A: weights[k] has those of 16 keys. scale is not negative: `turned` scores are.
 * exp2(score * scale - max) is worked out in an fma, so that nothing is lost. Where max is so large that its own rounding counts, the product
 * is rounded first: it is then no more than GROWTH above max, too. */
template <class T>
__device__ inline void soften_tile(const lane_place_of &lane, float scale, bool turned, bool masked,
                                   wgmma_block<KEYS> &s, lane_rows &rows, unsigned (&weights)[KEYS / 16][4]) {
  enum { CHAINS = 4, LARGE = 1 << 20 };
  if (turned) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s.of[j][e] = -s.of[j][e];
  }
  if (masked) {
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int col = 8 * j + 2 * lane.t + e % 2;
        if (col < rows.begin[e / 2] || col >= rows.end[e / 2]) s.of[j][e] = -INFINITY;
      }
  }
  float top[2][CHAINS], base[2], by[2];
#pragma unroll
  for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      float &most = top[e / 2][j % 2 * 2 + e % 2];
      most = j < 2 ? s.of[j][e] : fmaxf(most, s.of[j][e]); /* passes over NaN, which exp2(z - max) brings back */
    }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float largest = fmaxf(fmaxf(top[i][0], top[i][1]), fmaxf(top[i][2], top[i][3]));
    const float z = __fmul_rn(lanes_all<op_number_max, 4>(largest), scale),
                now = z > rows.max[i] + GROWTH ? z : rows.max[i];
    base[i] = now == -INFINITY ? 0 : now;
    rows.factor[i] = exp2_approx(rows.max[i] - base[i]);
    rows.max[i] = now;
    by[i] = scale;
  }
  if (__any_sync(0xffffffffu, fabsf(base[0]) > LARGE || fabsf(base[1]) > LARGE)) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float first = fabsf(base[i]) > LARGE ? scale : 1;
      if (fabsf(base[i]) > LARGE) by[i] = 1;
#pragma unroll
      for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) s.of[j][2 * i + e] = __fmul_rn(s.of[j][2 * i + e], first);
    }
  }
  float part[2][2] = {};
#pragma unroll
  for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float a = exp2_approx(fmaf(s.of[j][2 * i], by[i], -base[i]));
      const float b = exp2_approx(fmaf(s.of[j][2 * i + 1], by[i], -base[i]));
      part[i][0] += a, part[i][1] += b;
      weights[j / 2][j % 2 * 2 + i] = packed_two<T>(a, b);
    }
#pragma unroll
  for (int i = 0; i < 2; ++i) rows.sum[i] = fmaf(rows.sum[i], rows.factor[i], part[i][0] + part[i][1]);
}

/* o is brought to the scores that weights are now relative to, which seldom change. */
template <int DIM> __device__ inline void scale_output(wgmma_block<DIM> &o, const float (&factor)[2]) {
  if (!__any_sync(0xffffffffu, factor[0] != 1 || factor[1] != 1)) return;
#pragma unroll
  for (int j = 0; j < DIM / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) o.of[j][e] *= factor[e / 2];
}

/* q . k of a row and this lane's key, times the scale. */
template <class T> __device__ inline float score_of(const T *q, const T *k, int64_t width, float scale) {
  float sum = 0;
  for (int64_t c = 0; c < width; ++c) sum = fmaf(to_f32(q[c]), to_f32(k[c]), sum);
  return __fmul_rn(sum, scale);
}

/* A row anew, by a warp and with fma: an Inf or NaN of v must not meet a weight that is 0 because its key is not seen. */
template <class T, int DIM>
__device__ inline void attend_row(const T *q, const head<T> &k, const head<T> &v, T *o, int64_t begin, int64_t end,
                                  float scale) {
  const int lane = (int)threadIdx.x % WARP;
  float max = -INFINITY, sum = 0, acc[DIM / WARP] = {};
  for (int64_t y = begin + lane; y < end; y += WARP)
    max = fmaxf(max, score_of(q, k.data + y * k.pitch, k.width, scale));
  max = lanes_all<op_number_max, WARP>(max);
  const float base = max == -INFINITY ? 0 : max;
  for (int64_t y0 = begin; y0 < end; y0 += WARP) {
    const int64_t y = y0 + lane;
    const float w = y < end ? exp2_approx(score_of(q, k.data + y * k.pitch, k.width, scale) - base) : 0;
    sum += w;
    for (int i = 0; i < WARP && y0 + i < end; ++i) {
      const float f = __shfl_sync(0xffffffffu, w, i);
#pragma unroll
      for (int c = 0; c < DIM / WARP; ++c)
        if (c * WARP + lane < v.width) acc[c] = fmaf(f, to_f32(v.data[(y0 + i) * v.pitch + c * WARP + lane]), acc[c]);
    }
  }
  sum = lanes_all<op_sum, WARP>(sum);
#pragma unroll
  for (int c = 0; c < DIM / WARP; ++c)
    if (c * WARP + lane < v.width) o[c * WARP + lane] = from_f32<T>(acc[c] / sum);
}

#endif
