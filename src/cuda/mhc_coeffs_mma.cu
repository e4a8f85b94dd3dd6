/* mhc_coeffs of at most MHC_FEW streams and 16-bit x through the tensor cores. */
#include "cuda/kernel/mhc_back.cuh"
#include "cuda/kernel/mhc_logits.cuh"
#include "cuda/kernel/mhc_sinkhorn.cuh"

__device__ static inline float mhc_logit(const tigon_mhc_coeffs_problem &p, int m, float mix) {
  const tigon_vector &alpha = p.alpha[tigon_mhc_part(p.streams, m)];
  return fmaf(load_any(alpha.data, 0, alpha.dtype), mix, load_any(p.b.data, m, p.b.dtype));
}

/* The coefficients of the tile's tokens: a block of the cluster has some of them, 16 lanes each. */
template <class T> __device__ inline void mhc_finish(const mhc_logits_work<T> &work) {
  const tigon_mhc_coeffs_problem &p = work.p;
  const int n = (int)p.streams, lane = (int)threadIdx.x % 16, row = lane / 4, column = lane % 4;
  const bool there = row < n && column < n;
  constexpr int TOKENS = MHC_THREADS / 16;
  const int share = MHC_TILE / work.cl.size, own = work.cl.rank * share;
  for (int token = own + (int)threadIdx.x / 16; token < own + share; token += TOKENS) {
    const int64_t t = work.first + token;
    const bool exists = t < p.tokens.rows;
    const double rstd = 1 / sqrt(work.sum_of(token, MHC_COLUMNS) / (double)(p.streams * p.cols) + (double)p.rms_eps);
    const auto find = [&](int m) {
      const float mix = (float)(work.sum_of(token, m) * rstd);
      if (exists && p.mix.data) ((float *)p.mix.data)[t * work.coeffs + m] = mix;
      return mhc_logit(p, m, mix);
    };
    if (exists && p.rstd.data && lane == 0) ((float *)p.rstd.data)[t] = (float)rstd;
    if (lane < 2 * n) {
      float rest;
      const float s = mhc_sigmoid(find(lane), rest);
      float *to = (float *)p.h[lane / n].data + t * n + lane % n;
      if (exists) *to = lane < n ? s + p.pre_eps : s * p.post_mult;
    }
    const float soft = mhc_softmax_few(there ? find(2 * n + row * n + column) : 0, there);
    const float m = mhc_rounds_few(soft, (int)p.tmax, p.sinkhorn_eps, there, [](int, float) {});
    if (exists && there) ((float *)p.h[2].data)[t * n * n + row * n + column] = m;
  }
}

template <class T> __device__ inline void mhc_coeffs_fwd(const tigon_mhc_coeffs_problem &p) {
  const cluster cl = cluster_of_block();
  const mhc_logits_work<T> work(p, cl);
  work.find_sums();
  cluster_meet(cl);
  mhc_finish(work);
  cluster_end(cl);
}
#define MHC_FWD(T)                                                             \
  extern "C" __global__ void __launch_bounds__(MHC_THREADS, 2)                 \
      mhc_coeffs_fwd_##T(const __grid_constant__ tigon_mhc_coeffs_problem p) { \
    mhc_coeffs_fwd<T>(p);                                                      \
  }
MHC_FWD(f16)
MHC_FWD(bf16)

/* ---- backward ---- */

enum { MHC_FEW_TOKENS = MHC_THREADS / 16 }; /* tokens that a block has at once */

extern __shared__ float mhc_kept[]; /* [2 * tmax - 1, MHC_FEW_TOKENS, MHC_FEW] denominators */

/* 16 lanes have a token: each has dl of its coefficient of h_pre or h_post, and of its coefficient of h_res. */
struct mhc_few_token {
  const tigon_mhc_coeffs_problem &p;
  const mhc_few_work &work;
  const int n, coeffs, group, lane;
  float db[2], dalpha[3];

  __device__ mhc_few_token(const tigon_mhc_coeffs_problem &problem, const mhc_few_work &w)
      : p(problem), work(w), n((int)problem.streams), coeffs((int)tigon_mhc_coeffs(problem.streams)),
        group((int)threadIdx.x / 16), lane((int)threadIdx.x % 16), db{0, 0}, dalpha{0, 0, 0} {}
  /* Which coefficients those are; -1: none. */
  __device__ int of(int which) const {
    if (which == 0) return lane < 2 * n ? lane : -1;
    return lane / 4 < n && lane % 4 < n ? 2 * n + lane / 4 * n + lane % 4 : -1;
  }
  __device__ float sum_of_lanes(float v) const { return mhc_line_all<op_sum>(mhc_line_all<op_sum>(v, true), false); }

  __device__ void find_dl(int64_t t, const float (&mix)[2], float (&dl)[2]) const {
    float l[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int m = of(k);
      l[k] = dl[k] = 0;
      if (m < 0) continue;
      const int part = tigon_mhc_part(n, m), words = part < 2 ? n : n * n;
      const float *dh = (const float *)p.h[part].data;
      l[k] = mhc_logit(p, m, mix[k]);
      dl[k] = dh ? dh[t * words + m - part * n] : 0;
      if (m < n && work.dots) dl[k] += work.dots[t * n + m];
    }
    float rest;
    const float s = mhc_sigmoid(l[0], rest);
    if (lane < MHC_WEIGHTS && lane != MHC_FEW) work.weights[t * MHC_WEIGHTS + lane] = lane < n ? s + p.pre_eps : 0;
    dl[0] *= (lane < n ? 1 : p.post_mult) * (s * rest);
    const bool there = of(1) >= 0;
    const auto kept = [&](int step) { return mhc_kept + (step * MHC_FEW_TOKENS + group) * MHC_FEW; };
    const auto line = [&](int step) { return step & 1 ? lane / 4 : lane % 4; };
    const float soft = mhc_softmax_few(l[1], there);
    const float m = mhc_rounds_few(soft, (int)p.tmax, p.sinkhorn_eps, there, [&](int step, float by) {
      if ((step & 1 ? lane % 4 : lane / 4) == 0) kept(step)[line(step)] = by;
    });
    __syncwarp();
    dl[1] = mhc_rounds_back_few(dl[1], m, soft, (int)p.tmax, there, [&](int step) { return kept(step)[line(step)]; });
    __syncwarp(); /* they are the next token's */
  }

  /* For a token past the last one nothing is stored or added. */
  __device__ void find(int64_t t, bool exists) {
    const int64_t at = exists ? t : p.tokens.rows - 1;
    const float rstd = ((const float *)p.rstd.data)[at];
    float mix[2], dl[2], dot = 0;
#pragma unroll
    for (int k = 0; k < 2; ++k) mix[k] = of(k) < 0 ? 0 : ((const float *)p.mix.data)[at * coeffs + of(k)];
    find_dl(at, mix, dl);
    uint16_t *parts = work.parts + at * MHC_PART_WORDS;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int m = of(k);
      if (m < 0) continue;
      const int part = tigon_mhc_part(n, m);
      const tigon_vector &vector = p.alpha[part];
      const float slope = dl[k] * mix[k], alpha = load_any(vector.data, 0, vector.dtype);
      dot = fmaf(alpha, slope, dot);
      db[k] += exists ? dl[k] : 0;
#pragma unroll
      for (int i = 0; i < 3; ++i) dalpha[i] += part == i && exists ? slope : 0;
      bf16 of_record[MHC_PARTS];
      mhc_split(alpha * dl[k] * rstd, of_record);
#pragma unroll
      for (int i = 0; i < MHC_PARTS; ++i) parts[i * MHC_COLUMNS + m] = __bfloat16_as_ushort(of_record[i]);
    }
    for (int e = lane; e < MHC_PART_WORDS; e += 16)
      if (e >= MHC_PARTS * MHC_COLUMNS || e % MHC_COLUMNS >= coeffs) parts[e] = 0;
    dot = sum_of_lanes(dot);
    if (lane == 0) work.weights[at * MHC_WEIGHTS + MHC_FEW] = dot * rstd / (float)(p.streams * p.cols) * rstd;
  }
};

/* Blocks have tokens in turns, and a slab each. */
extern "C" __global__ void __launch_bounds__(MHC_THREADS)
    mhc_few_records(const __grid_constant__ tigon_mhc_coeffs_problem p, const __grid_constant__ mhc_few_work work) {
  __shared__ float sums[MHC_FEW_TOKENS][MHC_COLUMNS + 3];
  mhc_few_token token(p, work);
  const int64_t step = (int64_t)gridDim.x * MHC_FEW_TOKENS;
  for (int64_t first = (int64_t)blockIdx.x * MHC_FEW_TOKENS; first < p.tokens.rows; first += step)
    token.find(first + token.group, first + token.group < p.tokens.rows);
  if (!work.slabs) return;
#pragma unroll
  for (int k = 0; k < 2; ++k)
    if (token.of(k) >= 0) sums[token.group][token.of(k)] = token.db[k];
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const float all = token.sum_of_lanes(token.dalpha[i]);
    if (token.lane == 0) sums[token.group][token.coeffs + i] = all;
  }
  __syncthreads();
  const int at = (int)threadIdx.x;
  if (at >= token.coeffs + 3) return;
  float sum = 0;
  for (int g = 0; g < MHC_FEW_TOKENS; ++g) sum += sums[g][at];
  work.slabs[blockIdx.x * (token.coeffs + 3) + at] = sum;
}

#define MHC_BACK(T, parts)                                                                             \
  extern "C" __global__ void __launch_bounds__(MHC_BACK_THREADS, 1) mhc_coeffs_bwd_##parts##_##T(      \
      const __grid_constant__ tigon_mhc_coeffs_problem p, const __grid_constant__ mhc_few_work work) { \
    mhc_back_work<T, parts>(p, work).run();                                                            \
  }
MHC_BACK(f16, 1)
MHC_BACK(bf16, 1)
MHC_BACK(f16, 3)
MHC_BACK(bf16, 3)
