/* The products of attention's tiles, by fma in f32 and by the tensor cores in 16-bit dtypes. Either has the same members:
 *   THREADS of a block, each with R rows and C columns of the scores, and OUT columns of an output tile
 *   row(i), col(j), out(j): which; out(j) and out(j + 1) are neighbours for even j
 *   exp: of a difference from the largest score
 *   scores: s += a . b over `depth` columns of two tiles
 *   put: weights go to where gather finds them
 *   gather: acc = acc * factor + weights . b; row i has the columns [begin[i], end[i]) of the weights, where others are 0
 * Sums run over 16 or 32 terms from 0 and are then added to what was there. */
#ifndef TIGON_CUDA_KERNEL_ATTENTION_MATH_CUH
#define TIGON_CUDA_KERNEL_ATTENTION_MATH_CUH

#include "cuda/kernel/attention_tile.cuh"
#include "cuda/kernel/team.cuh"

enum { PART = 32, HALF = 16 };

/* Over the lanes that share a row. */
template <class Op, int LANES> __device__ inline float lanes_all(float v) {
#pragma unroll
  for (int d = LANES / 2; d > 0; d /= 2) v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, d));
  return v;
}
/* Passes over NaN. */
struct op_number_max {
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

/* 16 x 16 threads. Those of a row are half a warp, so that weights in shared memory need no barrier of the block. */
struct fma_math {
  enum { THREADS = ATTENTION_FMA_THREADS, R = 4, C = 4, OUT = 4, LANES = 16 };
  int y, x;

  __device__ fma_math() : y((int)threadIdx.x / 16), x((int)threadIdx.x % 16) {}
  __device__ int row(int i) const { return y + 16 * i; }
  __device__ int col(int j) const { return x + 16 * j; }
  __device__ int out(int j) const { return 4 * x + j; }
  __device__ static float exp(float v) { return expf(v); }

  __device__ void scores(const float *a, const float *b, int depth, float (&s)[R][C]) const {
    for (int k0 = 0; k0 < depth; k0 += PART) {
      float part[R][C] = {};
      const int k1 = min(k0 + PART, depth);
#pragma unroll 2
      for (int k = k0; k < k1; k += 4) {
        float4 u[R], v[C];
#pragma unroll
        for (int i = 0; i < R; ++i) u[i] = *(const float4 *)&a[row(i) * PITCH + k];
#pragma unroll
        for (int j = 0; j < C; ++j) v[j] = *(const float4 *)&b[col(j) * PITCH + k];
#pragma unroll
        for (int i = 0; i < R; ++i)
#pragma unroll
          for (int j = 0; j < C; ++j) {
            part[i][j] = fmaf(u[i].x, v[j].x, part[i][j]);
            part[i][j] = fmaf(u[i].y, v[j].y, part[i][j]);
            part[i][j] = fmaf(u[i].z, v[j].z, part[i][j]);
            part[i][j] = fmaf(u[i].w, v[j].w, part[i][j]);
          }
      }
#pragma unroll
      for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < C; ++j) s[i][j] += part[i][j];
    }
  }

  __device__ void put(float *space, const float (&w)[R][C]) const {
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < C; ++j) space[row(i) * PITCH + col(j)] = w[i][j];
    __syncwarp();
  }

  template <bool MASKED>
  __device__ void gather_part(const float *space, const float *b, int k0, const int (&begin)[R], const int (&end)[R],
                              float (&part)[R][OUT]) const {
#pragma unroll 2
    for (int k = k0; k < k0 + PART; k += 4) {
      float4 w[R];
#pragma unroll
      for (int i = 0; i < R; ++i) w[i] = *(const float4 *)&space[row(i) * PITCH + k];
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const float4 v = *(const float4 *)&b[(k + n) * PITCH + out(0)];
#pragma unroll
        for (int i = 0; i < R; ++i) {
          if (MASKED && (k + n < begin[i] || k + n >= end[i])) continue; /* where b may be Inf or NaN */
          const float f = n == 0 ? w[i].x : n == 1 ? w[i].y : n == 2 ? w[i].z : w[i].w;
          part[i][0] = fmaf(f, v.x, part[i][0]);
          part[i][1] = fmaf(f, v.y, part[i][1]);
          part[i][2] = fmaf(f, v.z, part[i][2]);
          part[i][3] = fmaf(f, v.w, part[i][3]);
        }
      }
    }
  }

  __device__ void gather(const float *space, const float (&)[R][C], const float *b, bool masked, bool,
                         const int (&begin)[R], const int (&end)[R], const float (&factor)[R],
                         float (&acc)[R][OUT]) const {
    for (int k0 = 0; k0 < TILE; k0 += PART) {
      float part[R][OUT] = {};
      if (masked)
        gather_part<true>(space, b, k0, begin, end, part);
      else
        gather_part<false>(space, b, k0, begin, end, part);
#pragma unroll
      for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < OUT; ++j) acc[i][j] = fmaf(acc[i][j], k0 == 0 ? factor[i] : 1, part[i][j]);
    }
  }
};

/* The weights of column k in the two rows of a lane's part of an mma's sums, where row `g` of eight lanes' fours has them. */
template <int C> __device__ inline void weights_of(int k, int g, const float (&w)[2][C], float (&f)[2]) {
  const int at = k / 8 * 2 + k % 2, from = 4 * g + k % 8 / 2;
  f[0] = f[1] = 0;
#pragma unroll
  for (int j = 0; j < C; ++j)
    if (j == at) f[0] = w[0][j], f[1] = w[1][j];
#pragma unroll
  for (int i = 0; i < 2; ++i) f[i] = __shfl_sync(0xffffffffu, f[i], from);
}

/* Four warps of 16 rows, by mma m16n8k8 in TF32, in which every f16 and bf16 is exact, with sums in f32. Weights are split in two
 * TF32 numbers, which have 22 of their 24 bits. The places of a thread are those of the instruction's accumulators: rows g and g + 8,
 * columns 2 t and 2 t + 1 of every 8, where lane = 4 g + t. Which k is the first in a sum does not matter, so that weights serve as
 * operand as they lie. */
struct tensor_math {
  enum { THREADS = ATTENTION_TENSOR_THREADS, R = 2, C = 16, OUT = 16, LANES = 4 };
  int first, g, t; /* first: row 0 of a thread */

  __device__ tensor_math() {
    const int lane = (int)threadIdx.x % WARP;
    g = lane / 4, t = lane % 4, first = (int)threadIdx.x / WARP * 16 + g;
  }
  __device__ int row(int i) const { return first + 8 * i; }
  __device__ int col(int j) const { return j / 2 * 8 + 2 * t + j % 2; }
  __device__ int out(int j) const { return col(j); }
  __device__ static float exp(float v) { return expf(v); }

  __device__ static void multiply(float (&c)[4], const unsigned (&a)[4], float b0, float b1) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
  }
  __device__ static unsigned to_tf32(float v) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(v));
    return bits;
  }

  __device__ void scores(const float *a, const float *b, int depth, float (&s)[R][C]) const {
    const float *a0 = a + first * PITCH + t, *a1 = a0 + 8 * PITCH, *b0 = b + g * PITCH + t;
#pragma unroll 1
    for (int k0 = 0; k0 < depth; k0 += PART) {
      unsigned u[PART / 8][4];
#pragma unroll
      for (int k = 0; k < PART / 8; ++k) { /* zeros, past the depth */
        u[k][0] = __float_as_uint(a0[k0 + 8 * k]), u[k][1] = __float_as_uint(a1[k0 + 8 * k]);
        u[k][2] = __float_as_uint(a0[k0 + 8 * k + 4]), u[k][3] = __float_as_uint(a1[k0 + 8 * k + 4]);
      }
#pragma unroll
      for (int n = 0; n < C / 2; ++n) {
        float part[4] = {0, 0, 0, 0};
        const float *v = b0 + n * 8 * PITCH + k0;
#pragma unroll
        for (int k = 0; k < PART / 8; ++k) multiply(part, u[k], v[8 * k], v[8 * k + 4]);
        s[0][2 * n] += part[0], s[0][2 * n + 1] += part[1], s[1][2 * n] += part[2], s[1][2 * n + 1] += part[3];
      }
    }
  }

  __device__ void put(float *, const float (&)[R][C]) const {}

  /* For tiles with an Inf or NaN, which a split number, or a weight that is not there, must not meet. */
  __device__ void gather_carefully(const float (&w)[R][C], const float *b, const int (&begin)[R], const int (&end)[R],
                                   const float (&factor)[R], float (&acc)[R][OUT]) const {
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
      for (int j = 0; j < OUT; ++j) acc[i][j] *= factor[i];
#pragma unroll 1
    for (int k = 0; k < TILE; ++k) {
      float f[R];
      weights_of(k, g, w, f);
#pragma unroll
      for (int i = 0; i < R; ++i) {
        if (k < begin[i] || k >= end[i]) continue;
#pragma unroll
        for (int j = 0; j < OUT; ++j) acc[i][j] = fmaf(f[i], b[k * PITCH + out(j)], acc[i][j]);
      }
    }
  }

  __device__ void gather(const float *, const float (&w)[R][C], const float *b, bool, bool finite,
                         const int (&begin)[R], const int (&end)[R], const float (&factor)[R],
                         float (&acc)[R][OUT]) const {
    if (!finite) {
      gather_carefully(w, b, begin, end, factor, acc);
      return;
    }
    const float *b0 = b + 2 * t * PITCH + g;
#pragma unroll
    for (int k0 = 0; k0 < TILE; k0 += HALF) {
      unsigned high[HALF / 8][4], low[HALF / 8][4];
#pragma unroll
      for (int k = 0; k < HALF / 8; ++k)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float v = w[e % 2][2 * (k0 / 8 + k) + e / 2];
          high[k][e] = to_tf32(v);
          low[k][e] = to_tf32(v - __uint_as_float(high[k][e]));
        }
#pragma unroll
      for (int n = 0; n < OUT / 2; ++n) {
        float part[4] = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < HALF / 8; ++k) {
          const float *v = b0 + (k0 + 8 * k) * PITCH + 8 * n;
          multiply(part, low[k], v[0], v[PITCH]);
          multiply(part, high[k], v[0], v[PITCH]);
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          float &sum = acc[e / 2][2 * n + e % 2];
          sum = fmaf(sum, k0 == 0 ? factor[e / 2] : 1, part[e]);
        }
      }
    }
  }
};

template <int ROWS, int COLS> __device__ inline bool all_finite(const float (&v)[ROWS][COLS]) {
  bool finite = true;
#pragma unroll
  for (int i = 0; i < ROWS; ++i)
#pragma unroll
    for (int j = 0; j < COLS; ++j) finite = finite && fabsf(v[i][j]) < INFINITY;
  return finite;
}

/* From a product q . k to z: times the scale, then under the cap. PLAIN kernels know no cap. */
template <bool PLAIN> struct score_map {
  float scale, cap, inverse; /* cap 0: none */

  template <class P>
  __device__ explicit score_map(const P &p)
      : scale(p.scale), cap(PLAIN ? 0 : p.softcap), inverse(PLAIN || cap == 0 ? 0 : 1 / cap) {}
  __device__ bool capped() const { return !PLAIN && cap > 0; }
  __device__ float under_cap(float scaled) const { return __fmul_rn(cap, tanhf(scaled * inverse)); }
  /* 1 / cosh^2, which keeps its digits where 1 - tanh^2 has none. */
  template <class M> __device__ float slope(float scaled) const {
    const float e = M::exp(-2 * fabsf(scaled * inverse)), share = 1 / (1 + e);
    return 4 * e * (share * share);
  }
};

/* Scores become exp(z - max); factor is what earlier sums are multiplied by. */
template <class M, bool PLAIN>
__device__ inline void soften(const M &m, const score_map<PLAIN> &map, bool masked, const int (&begin)[M::R],
                              const int (&end)[M::R], float (&s)[M::R][M::C], float (&max)[M::R], float (&sum)[M::R],
                              float (&factor)[M::R]) {
#pragma unroll
  for (int i = 0; i < M::R; ++i) {
    float top = max[i];
    /* Rounded before max is taken, and never inside an fma: of the largest score, nothing is left, however large it is. */
#pragma unroll
    for (int j = 0; j < M::C; ++j) s[i][j] = __fmul_rn(s[i][j], map.scale);
    if (map.capped()) {
#pragma unroll
      for (int j = 0; j < M::C; ++j) s[i][j] = map.under_cap(s[i][j]);
    }
    if (masked) {
#pragma unroll
      for (int j = 0; j < M::C; ++j)
        if (m.col(j) < begin[i] || m.col(j) >= end[i]) s[i][j] = -INFINITY;
    }
#pragma unroll
    for (int j = 0; j < M::C; ++j) top = fmaxf(top, s[i][j]); /* passes over NaN, which exp(z - max) brings back */
    top = lanes_all<op_number_max, M::LANES>(top);
    const float base = top == -INFINITY ? 0 : top;
    float part = 0;
    factor[i] = M::exp(max[i] - base);
    max[i] = top;
#pragma unroll
    for (int j = 0; j < M::C; ++j) {
      s[i][j] = M::exp(s[i][j] - base);
      part += s[i][j];
    }
    sum[i] = fmaf(sum[i], factor[i], part); /* the sum over this thread's columns */
  }
}

/* A head's sink joins the sum of a query. Returns what o is multiplied by. */
__device__ static inline float join_sink(float sink, float &max, float &sum) {
  const float top = fmaxf(max, sink), base = top == -INFINITY ? 0 : top; /* a NaN comes back from own */
  const float own = sink == INFINITY ? 1 : expf(sink - base), rest = expf(max - base);
  sum = fmaf(sum, rest, own);
  max = top;
  return sum == 0 ? 0 : rest / sum;
}

template <class T> struct math_for { typedef tensor_math type; };
template <> struct math_for<float> { typedef fma_math type; };

#endif
