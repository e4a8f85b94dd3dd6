/* mhc_coeffs. Forward: products of tiles of tokens, whose logits lie where h_pre, h_post and h_res will; then a warp a token. Backward: a warp
 * a token leaves records, of which dx and dphi are made. */
#include "cuda/kernel/column_sum.cuh"
#include "cuda/kernel/mhc_product.cuh"
#include "cuda/kernel/mhc_sinkhorn.cuh"

/* Coefficient m of token t in h_pre, h_post or h_res. */
__device__ static inline float *h_at(const tigon_mhc_coeffs_problem &p, int64_t t, int m) {
  const int n = (int)p.streams, part = tigon_mhc_part(n, m), words = part < 2 ? n : n * n;
  float *h = (float *)p.h[part].data;
  return h ? h + t * words + m - part * n : NULL;
}
__device__ static inline float alpha_at(const tigon_mhc_coeffs_problem &p, int m) {
  const tigon_vector &alpha = p.alpha[tigon_mhc_part(p.streams, m)];
  return load_any(alpha.data, 0, alpha.dtype);
}

/* ---- forward ---- */

/* Terms of a lane's token: MHC_EACH channels a warp. */
template <class T, bool PACKS> struct mhc_tokens {
  const tigon_mhc_coeffs_problem &p;
  const int64_t t;
  mhc_channel at;
  double squares = 0;

  __device__ mhc_tokens(const tigon_mhc_coeffs_problem &problem, int64_t first)
      : p(problem), t(first + (int)threadIdx.x % WARP), at(problem.cols, (int)threadIdx.x / WARP * MHC_EACH) {}
  __device__ const T *row(int64_t stream) const { return row_of<T>(p.space, p.x, t * p.streams + stream); }
  __device__ void load(mhc_space &s) {
    const int first = (int)threadIdx.x / WARP * MHC_EACH, lane = (int)threadIdx.x % WARP;
    float x[MHC_EACH] = {0}, sum = 0;
    if constexpr (PACKS) {
      constexpr int N = pack<T>::N;
      static_assert(MHC_EACH % N == 0, "whole packs");
      float v[N];
      if (t < p.tokens.rows && at.stream < p.streams)
#pragma unroll
        for (int k = 0; k < MHC_EACH; k += N) {
          unpack(load_pack(row(at.stream) + at.c + k), v);
#pragma unroll
          for (int e = 0; e < N; ++e) x[k + e] = v[e];
        }
    } else {
      mhc_channel each = at;
#pragma unroll
      for (int k = 0; k < MHC_EACH; ++k, each.advance(1))
        if (t < p.tokens.rows && each.stream < p.streams) x[k] = to_f32(row(each.stream)[each.c]);
    }
#pragma unroll
    for (int k = 0; k < MHC_EACH; ++k) {
      s.left[first + k][lane] = x[k];
      sum = fmaf(x[k], x[k], sum);
    }
    squares += (double)sum;
    at.advance(MHC_DEPTH);
  }
};

template <class T, bool PACKS> __device__ inline void mhc_logits(const tigon_mhc_coeffs_problem &p) {
  __shared__ mhc_space s;
  __shared__ double squares[MHC_WARPS][MHC_SIDE];
  const int64_t first = (int64_t)blockIdx.x * MHC_SIDE, depth = p.streams * p.cols;
  const int coeffs = (int)tigon_mhc_coeffs(p.streams), m0 = (int)blockIdx.y * MHC_COLUMNS;
  double total[MHC_OUT] = {0};
  mhc_tokens<T, PACKS> tokens(p, first);
  mhc_product(s, depth, total, [&](int64_t d) {
    tokens.load(s);
    for (int e = (int)threadIdx.x; e < MHC_DEPTH * MHC_COLUMNS; e += MHC_THREADS) {
      const int k = e / MHC_COLUMNS, m = m0 + e % MHC_COLUMNS;
      s.right[k][e % MHC_COLUMNS] =
          d + k < depth && m < coeffs ? load_any(p.phi, (d + k) * coeffs + m, p.phi_dtype) : 0;
    }
  });
  squares[threadIdx.x / WARP][threadIdx.x % WARP] = tokens.squares;
  __syncthreads();
#pragma unroll
  for (int r = 0; r < MHC_OUT; ++r) {
    const int row = mhc_sum_row(r), m = m0 + mhc_sum_column(r);
    const int64_t t = first + row;
    if (t >= p.tokens.rows || m >= coeffs) continue;
    double all = 0;
    for (int w = 0; w < MHC_WARPS; ++w) all += squares[w][row];
    const double rstd = 1 / sqrt(all / (double)depth + (double)p.rms_eps);
    const float mix = (float)(total[r] * rstd);
    if (p.mix.data) ((float *)p.mix.data)[t * coeffs + m] = mix;
    if (p.rstd.data && m == 0) ((float *)p.rstd.data)[t] = (float)rstd;
    *h_at(p, t, m) = fmaf(alpha_at(p, m), mix, load_any(p.b.data, m, p.b.dtype));
  }
}
KERNEL_BY_DTYPE(mhc_logits_packs, (MHC_THREADS), (const __grid_constant__ tigon_mhc_coeffs_problem p),
                mhc_logits<T, true>(p))
KERNEL_BY_DTYPE(mhc_logits_any, (MHC_THREADS), (const __grid_constant__ tigon_mhc_coeffs_problem p),
                mhc_logits<T, false>(p))

extern "C" __global__ void __launch_bounds__(MHC_TOKEN_WARPS *WARP)
    mhc_sinkhorn(const __grid_constant__ tigon_mhc_coeffs_problem p) {
  __shared__ float matrices[MHC_TOKEN_WARPS][TIGON_MHC_STREAMS * TIGON_MHC_STREAMS],
      by[MHC_TOKEN_WARPS][TIGON_MHC_STREAMS];
  const int warp = (int)threadIdx.x / WARP, lane = (int)threadIdx.x % WARP, n = (int)p.streams;
  const int64_t t = (int64_t)blockIdx.x * MHC_TOKEN_WARPS + warp;
  float *m = matrices[warp], *h_res = (float *)p.h[2].data + t * n * n;
  if (t >= p.tokens.rows) return;
  for (int e = lane; e < n * n; e += WARP) m[e] = h_res[e];
  if (lane < n) {
    float *pre = h_at(p, t, lane), *post = h_at(p, t, n + lane), rest;
    *pre = mhc_sigmoid(*pre, rest) + p.pre_eps;
    *post = mhc_sigmoid(*post, rest) * p.post_mult;
  }
  __syncwarp();
  mhc_softmax(m, m, n, lane);
  mhc_rounds(m, by[warp], n, (int)p.tmax, p.sinkhorn_eps, false, lane);
  for (int e = lane; e < n * n; e += WARP) h_res[e] = m[e];
}

/* ---- backward ---- */

extern __shared__ float
    mhc_words[]; /* a warp: softmax, h_res and its gradient [n, n]; denominators [2 * tmax - 1, n]; dots [n] */

/* What lane has of the coefficients: lane, lane + WARP, ... */
enum { MHC_OWN = (TIGON_MHC_COEFFS + WARP - 1) / WARP };

/* dl of token t, for each of a lane's coefficients; its h_pre goes to the record. */
__device__ static inline void find_dl(const tigon_mhc_coeffs_problem &p, const mhc_work &work, int64_t t, float *words,
                                      int lane, float (&dl)[MHC_OWN]) {
  const int n = (int)p.streams, coeffs = (int)tigon_mhc_coeffs(n);
  float *soft = words, *m = soft + n * n, *g = m + n * n, *by = g + n * n, *dots = by + (2 * p.tmax - 1) * n;
  const float *mix = (const float *)p.mix.data + t * coeffs;
  float *record = work.records + t * work.pitch;
#pragma unroll
  for (int k = 0; k < MHC_OWN; ++k) {
    const int c = lane + k * WARP;
    dl[k] = 0;
    if (c >= coeffs) continue;
    const float *dh = h_at(p, t, c);
    const float l = fmaf(alpha_at(p, c), mix[c], load_any(p.b.data, c, p.b.dtype));
    dl[k] = dh ? *dh : 0;
    if (c < n && work.dots) dl[k] += work.dots[t * n + c];
    if (c >= 2 * n) {
      soft[c - 2 * n] = l, g[c - 2 * n] = dl[k];
    } else {
      float rest;
      const float s = mhc_sigmoid(l, rest);
      if (c < n) record[coeffs + c] = s + p.pre_eps;
      dl[k] *= (c < n ? 1 : p.post_mult) * (s * rest);
    }
  }
  __syncwarp();
  mhc_softmax(soft, soft, n, lane);
  for (int e = lane; e < n * n; e += WARP) m[e] = soft[e];
  __syncwarp();
  mhc_rounds(m, by, n, (int)p.tmax, p.sinkhorn_eps, true, lane);
  mhc_rounds_back(g, m, soft, by, dots, n, (int)p.tmax, lane);
#pragma unroll
  for (int k = 0; k < MHC_OWN; ++k) {
    const int c = lane + k * WARP;
    if (c >= 2 * n && c < coeffs) dl[k] = g[c - 2 * n];
  }
  __syncwarp(); /* the words are the next token's */
}

/* Warps have tokens in turns, and a slab each. */
extern "C" __global__ void __launch_bounds__(MHC_TOKEN_WARPS *WARP)
    mhc_records(const __grid_constant__ tigon_mhc_coeffs_problem p, const __grid_constant__ mhc_work work) {
  const int n = (int)p.streams, coeffs = (int)tigon_mhc_coeffs(n), lane = (int)threadIdx.x % WARP;
  const int64_t warp = (int64_t)blockIdx.x * MHC_TOKEN_WARPS + threadIdx.x / WARP;
  float *words = mhc_words + threadIdx.x / WARP * (3 * n * n + 2 * p.tmax * n);
  float db[MHC_OWN] = {0}, dalpha[3] = {0};
  if (warp >= work.warps) return;
  for (int64_t t = warp; t < p.tokens.rows; t += work.warps) {
    const float *mix = (const float *)p.mix.data + t * coeffs, rstd = ((const float *)p.rstd.data)[t];
    float *record = work.records + t * work.pitch, dl[MHC_OWN], dot = 0;
    find_dl(p, work, t, words, lane, dl);
#pragma unroll
    for (int k = 0; k < MHC_OWN; ++k) {
      const int c = lane + k * WARP;
      if (c >= coeffs) continue;
      const float slope = dl[k] * mix[c], alpha = alpha_at(p, c);
      const int part = tigon_mhc_part(n, c);
      db[k] += dl[k];
      dot = fmaf(alpha, slope, dot);
#pragma unroll
      for (int i = 0; i < 3; ++i) dalpha[i] += part == i ? slope : 0;
      record[c] = alpha * dl[k] * rstd;
    }
    dot = warp_all<op_sum>(dot);
    if (lane == 0) record[coeffs + n] = dot * rstd / (float)(p.streams * p.cols);
  }
  if (!work.slabs) return;
  float *slab = work.slabs + warp * (coeffs + 3);
#pragma unroll
  for (int k = 0; k < MHC_OWN; ++k)
    if (lane + k * WARP < coeffs) slab[lane + k * WARP] = db[k];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    dalpha[i] = warp_all<op_sum>(dalpha[i]);
    if (lane == 0) slab[coeffs + i] = dalpha[i];
  }
}

/* A thread has a channel of MHC_DX_TOKENS tokens, and reads that row of phi once. */
template <class T> __device__ inline void mhc_dx(const tigon_mhc_coeffs_problem &p, const mhc_work &work) {
  __shared__ __align__(16) float records[MHC_COLUMNS][MHC_DX_TOKENS];
  const int n = (int)p.streams, coeffs = (int)tigon_mhc_coeffs(n);
  const int64_t panels = (p.cols + MHC_THREADS - 1) / MHC_THREADS, i = blockIdx.x / panels;
  const int64_t c = blockIdx.x % panels * MHC_THREADS + threadIdx.x,
                tile = (int64_t)blockIdx.z * gridDim.y + blockIdx.y, first = tile * MHC_DX_TOKENS;
  float sum[MHC_DX_TOKENS] = {0};
  for (int m0 = 0; m0 < coeffs; m0 += MHC_COLUMNS) {
    __syncthreads();
    for (int e = (int)threadIdx.x; e < MHC_DX_TOKENS * MHC_COLUMNS; e += MHC_THREADS) {
      const int64_t t = first + e / MHC_COLUMNS;
      const int m = m0 + e % MHC_COLUMNS;
      records[e % MHC_COLUMNS][e / MHC_COLUMNS] =
          t < p.tokens.rows && m < coeffs ? work.records[t * work.pitch + m] : 0;
    }
    __syncthreads();
    if (c >= p.cols) continue;
#pragma unroll
    for (int m = 0; m < MHC_COLUMNS; ++m) {
      if (m0 + m >= coeffs) break;
      const float phi = load_any(p.phi, (i * p.cols + c) * coeffs + m0 + m, p.phi_dtype);
#pragma unroll
      for (int t = 0; t < MHC_DX_TOKENS; ++t) sum[t] = fmaf(phi, records[m][t], sum[t]);
    }
  }
  if (c >= p.cols) return;
#pragma unroll
  for (int k = 0; k < MHC_DX_TOKENS; ++k) {
    const int64_t t = first + k;
    if (t >= p.tokens.rows) break;
    const float *record = work.records + t * work.pitch + coeffs;
    const float x = to_f32(row_of<T>(p.space, p.x, t * n + i)[c]) * ((const float *)p.rstd.data)[t];
    float dx = fmaf(-x, record[n], sum[k]);
    if (p.y.data) dx = fmaf(record[i], to_f32(row_of<T>(p.tokens, p.y, t)[c]), dx);
    row_of<T>(p.space, p.dx, t * n + i)[c] = from_f32<T>(dx);
  }
}
KERNEL_BY_DTYPE(mhc_dx, (MHC_THREADS),
                (const __grid_constant__ tigon_mhc_coeffs_problem p, const __grid_constant__ mhc_work work),
                mhc_dx<T>(p, work))

/* A block has MHC_SIDE channels, and reads all tokens. */
template <class T> __device__ inline void mhc_dphi(const tigon_mhc_coeffs_problem &p, const mhc_work &work) {
  __shared__ mhc_space s;
  const int coeffs = (int)tigon_mhc_coeffs(p.streams), m0 = (int)blockIdx.y * MHC_COLUMNS;
  const int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP;
  const int64_t depth = p.tokens.rows, channels = p.streams * p.cols, first = (int64_t)blockIdx.x * MHC_SIDE;
  const mhc_channel at(p.cols, first + lane);
  double total[MHC_OUT] = {0};
  mhc_product(s, depth, total, [&](int64_t d) {
#pragma unroll
    for (int k = 0; k < MHC_EACH; ++k) {
      const int64_t t = d + warp * MHC_EACH + k;
      s.left[warp * MHC_EACH + k][lane] =
          t < depth && at.stream < p.streams ? to_f32(row_of<T>(p.space, p.x, t * p.streams + at.stream)[at.c]) : 0;
    }
    for (int e = (int)threadIdx.x; e < MHC_DEPTH * MHC_COLUMNS; e += MHC_THREADS) {
      const int64_t t = d + e / MHC_COLUMNS;
      const int m = m0 + e % MHC_COLUMNS;
      s.right[e / MHC_COLUMNS][e % MHC_COLUMNS] = t < depth && m < coeffs ? work.records[t * work.pitch + m] : 0;
    }
  });
#pragma unroll
  for (int r = 0; r < MHC_OUT; ++r) {
    const int64_t k = first + mhc_sum_row(r);
    const int m = m0 + mhc_sum_column(r);
    if (k >= channels || m >= coeffs) continue;
    const float before = p.accumulate ? load_any(p.dphi.data, k * coeffs + m, p.dphi.dtype) : 0;
    store_any(p.dphi.data, k * coeffs + m, p.dphi.dtype, (float)(total[r] + (double)before));
  }
}
KERNEL_BY_DTYPE(mhc_dphi, (MHC_THREADS),
                (const __grid_constant__ tigon_mhc_coeffs_problem p, const __grid_constant__ mhc_work work),
                mhc_dphi<T>(p, work))
