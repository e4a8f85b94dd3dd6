/* Sinkhorn of a token by a warp: matrices [n, n] in shared memory. */
#ifndef TIGON_CUDA_KERNEL_MHC_SINKHORN_CUH
#define TIGON_CUDA_KERNEL_MHC_SINKHORN_CUH

#include "cuda/kernel/team.cuh"

/* s(x), and 1 - s(x) without a cancellation. */
__device__ static inline float mhc_sigmoid(float x, float &rest) {
  const float e = expf(-fabsf(x)), near = 1 / (1 + e), far = e / (1 + e);
  rest = x < 0 ? near : far;
  return x < 0 ? far : near;
}

/* Even steps are of columns, odd ones of rows: the w-th element of line v. */
__device__ static inline int mhc_place(int n, int step, int v, int w) { return step & 1 ? v * n + w : w * n + v; }
__device__ static inline int mhc_line(int n, int step, int e) { return step & 1 ? e / n : e % n; }

/* p = softmax of the rows of l, which may be p. */
__device__ static inline void mhc_softmax(float *p, const float *l, int n, int lane) {
  if (lane < n) {
    float most = l[lane * n], sum = 0;
    for (int i = 1; i < n; ++i) most = fmaxf(most, l[lane * n + i]);
    for (int i = 0; i < n; ++i) sum += p[lane * n + i] = expf(l[lane * n + i] - most);
    for (int i = 0; i < n; ++i) p[lane * n + i] /= sum;
  }
  __syncwarp();
}

/* m by tmax rounds. Denominators are kept at [step, n], or all in the same place. */
__device__ static inline void mhc_rounds(float *m, float *by, int n, int tmax, float eps, bool keep, int lane) {
  for (int e = lane; e < n * n; e += WARP) m[e] += eps;
  __syncwarp();
  for (int step = 0; step < 2 * tmax - 1; ++step) {
    float *now = by + (keep ? step * n : 0);
    if (lane < n) {
      float sum = 0;
      for (int w = 0; w < n; ++w) sum += m[mhc_place(n, step, lane, w)];
      now[lane] = sum + eps;
    }
    __syncwarp();
    for (int e = lane; e < n * n; e += WARP) m[e] /= now[mhc_line(n, step, e)];
    __syncwarp();
  }
}

/* g, the gradients of h_res, which is m, become those of the logits. The last step is softmax's. */
__device__ static inline void mhc_rounds_back(float *g, float *m, const float *p, const float *by, float *dots, int n,
                                              int tmax, int lane) {
  for (int step = 2 * tmax - 2; step >= -1; --step) {
    const float *of = step < 0 ? p : m;
    if (lane < n) {
      float dot = 0;
      for (int w = 0; w < n; ++w) {
        const int at = mhc_place(n, step, lane, w);
        dot = fmaf(g[at], of[at], dot);
      }
      dots[lane] = dot;
    }
    __syncwarp();
    for (int e = lane; e < n * n; e += WARP) {
      const int line = mhc_line(n, step, e);
      const float less = g[e] - dots[line];
      if (step < 0) {
        g[e] = less * p[e];
      } else {
        g[e] = less / by[step * n + line];
        m[e] *= by[step * n + line];
      }
    }
    __syncwarp();
  }
}

/* ---- of MHC_FEW streams at most, 16 lanes a matrix: lane 4 v + w has row v's element w ---- */

template <class Op> __device__ inline float mhc_line_all(float v, bool rows) {
  v = Op::of(v, __shfl_xor_sync(0xffffffffu, v, rows ? 1 : 4));
  return Op::of(v, __shfl_xor_sync(0xffffffffu, v, rows ? 2 : 8));
}

struct mhc_largest {
  __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

/* Lanes that are not `there` have 0. */
__device__ static inline float mhc_softmax_few(float l, bool there) {
  const float most = mhc_line_all<mhc_largest>(there ? l : __int_as_float(0xff800000), true);
  const float e = there ? expf(l - most) : 0;
  const float sum = mhc_line_all<op_sum>(e, true);
  return there ? e / sum : 0;
}

/* m of softmax by tmax rounds; keep(step, denominator) of the lane's line. */
template <class F> __device__ inline float mhc_rounds_few(float soft, int tmax, float eps, bool there, F keep) {
  float m = there ? soft + eps : 0;
  for (int step = 0; step < 2 * tmax - 1; ++step) {
    const float by = mhc_line_all<op_sum>(m, step & 1) + eps;
    keep(step, by);
    m = there ? m / by : 0;
  }
  return m;
}

/* The gradient g of h_res, which is m, becomes that of the logit; by(step) is what was kept. */
template <class F>
__device__ inline float mhc_rounds_back_few(float g, float m, float soft, int tmax, bool there, F by) {
  for (int step = 2 * tmax - 2; step >= 0; --step) {
    const float less = g - mhc_line_all<op_sum>(g * m, step & 1), of = by(step);
    g = there ? less / of : 0;
    m *= of;
  }
  const float dot = mhc_line_all<op_sum>(g * soft, true);
  return there ? (g - dot) * soft : 0;
}

#endif
