/* mhc_post_res: a block has a token. Of few streams, whose rows lie on 16 bytes, a thread holds a pack of each and makes all outputs of
 * them; of others it makes an element at a time, and a warp each product of two rows. f is one more stream that comes in. */
#include "cuda/kernel/element.cuh"
#include "cuda/kernel/team.cuh"
#include "cuda/mhc.h"

enum { WARPS = MHC_THREADS / WARP };

/* The rows of a block's token, and its weights [out, in with f]. */
template <class T> struct mhc_token {
  const tigon_mhc_post_res_problem &p;
  const int64_t t;
  const int in, out;
  float *w;

  __device__ mhc_token(const tigon_mhc_post_res_problem &problem, int64_t token, float *weights)
      : p(problem), t(token), in((int)problem.in + (problem.f.data != NULL)), out((int)problem.out), w(weights) {
    const float *h_res = (const float *)p.h_res.data, *h_post = (const float *)p.h_post.data;
    for (int e = (int)threadIdx.x; e < in * out; e += MHC_THREADS) {
      const int j = e / in, i = e % in;
      w[e] = i < p.in ? h_res[(t * p.out + j) * p.in + i] : h_post[t * p.out + j];
    }
    __syncthreads();
  }
  __device__ const T *in_row(int i) const {
    return i < p.in ? row_of<T>(p.in_space, p.x, t * p.in + i) : row_of<T>(p.tokens, p.f, t);
  }
  __device__ T *out_row(int j) const { return row_of<T>(p.out_space, p.o, t * p.out + j); }
  /* NULL: not wanted. */
  __device__ T *din_row(int i) const {
    if (i < p.in) return p.dx.data ? row_of<T>(p.in_space, p.dx, t * p.in + i) : NULL;
    return p.df.data ? row_of<T>(p.tokens, p.df, t) : NULL;
  }
  __device__ float *dw(int j, int i) const {
    float *dh_res = (float *)p.dh_res.data, *dh_post = (float *)p.dh_post.data;
    if (i < p.in) return dh_res ? dh_res + (t * p.out + j) * p.in + i : NULL;
    return dh_post ? dh_post + t * p.out + j : NULL;
  }
};

template <class T> __device__ inline void mhc_fwd_few(const mhc_token<T> &k) {
  constexpr int N = pack<T>::N;
  for (int64_t c = (int64_t)threadIdx.x * N; c < k.p.cols; c += MHC_THREADS * N) {
    float x[MHC_FEW + 1][N];
#pragma unroll
    for (int i = 0; i <= MHC_FEW; ++i)
      if (i < k.in) unpack(load_pack(k.in_row(i) + c), x[i]);
    for (int j = 0; j < k.out; ++j) {
      float sum[N] = {0};
#pragma unroll
      for (int i = 0; i <= MHC_FEW; ++i)
        if (i < k.in)
#pragma unroll
          for (int e = 0; e < N; ++e) sum[e] = fmaf(k.w[j * k.in + i], x[i][e], sum[e]);
      store_pack(k.out_row(j) + c, packed<T, N>(sum));
    }
  }
}

template <class T> __device__ inline void mhc_bwd_few(const mhc_token<T> &k) {
  constexpr int N = pack<T>::N;
  __shared__ float parts[WARPS][MHC_FEW * (MHC_FEW + 1)];
  float dot[MHC_FEW][MHC_FEW + 1] = {{0}};
  for (int64_t c = (int64_t)threadIdx.x * N; c < k.p.cols; c += MHC_THREADS * N) {
    float g[MHC_FEW][N];
#pragma unroll
    for (int j = 0; j < MHC_FEW; ++j)
      if (j < k.out) unpack(load_pack(k.out_row(j) + c), g[j]);
#pragma unroll
    for (int i = 0; i <= MHC_FEW; ++i) {
      if (i >= k.in) continue;
      float x[N], sum[N] = {0};
      unpack(load_pack(k.in_row(i) + c), x);
#pragma unroll
      for (int j = 0; j < MHC_FEW; ++j) {
        if (j >= k.out) continue;
#pragma unroll
        for (int e = 0; e < N; ++e) {
          sum[e] = fmaf(k.w[j * k.in + i], g[j][e], sum[e]);
          dot[j][i] = fmaf(g[j][e], x[e], dot[j][i]);
        }
      }
      T *to = k.din_row(i);
      if (to) store_pack(to + c, packed<T, N>(sum));
    }
  }
#pragma unroll
  for (int j = 0; j < MHC_FEW; ++j)
#pragma unroll
    for (int i = 0; i <= MHC_FEW; ++i) {
      dot[j][i] = warp_all<op_sum>(dot[j][i]);
      if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP][j * (MHC_FEW + 1) + i] = dot[j][i];
    }
  __syncthreads();
  const int j = (int)threadIdx.x / (MHC_FEW + 1), i = (int)threadIdx.x % (MHC_FEW + 1);
  if (j >= k.out || i >= k.in) return;
  float sum = 0;
  for (int w = 0; w < WARPS; ++w) sum += parts[w][threadIdx.x];
  float *to = k.dw(j, i);
  if (to) *to = sum;
}

template <class T> __device__ inline void mhc_fwd_any(const mhc_token<T> &k) {
  for (int64_t c = threadIdx.x; c < k.p.cols; c += MHC_THREADS)
    for (int j = 0; j < k.out; ++j) {
      float sum = 0;
      for (int i = 0; i < k.in; ++i) sum = fmaf(k.w[j * k.in + i], to_f32(k.in_row(i)[c]), sum);
      k.out_row(j)[c] = from_f32<T>(sum);
    }
}

template <class T> __device__ inline void mhc_bwd_any(const mhc_token<T> &k) {
  for (int64_t c = threadIdx.x; c < k.p.cols; c += MHC_THREADS)
    for (int i = 0; i < k.in; ++i) {
      T *to = k.din_row(i);
      float sum = 0;
      for (int j = 0; to && j < k.out; ++j) sum = fmaf(k.w[j * k.in + i], to_f32(k.out_row(j)[c]), sum);
      if (to) to[c] = from_f32<T>(sum);
    }
  for (int e = (int)threadIdx.x / WARP; e < k.in * k.out; e += WARPS) {
    float *to = k.dw(e / k.in, e % k.in);
    const T *g = k.out_row(e / k.in), *x = k.in_row(e % k.in);
    float sum = 0;
    for (int64_t c = threadIdx.x % WARP; to && c < k.p.cols; c += WARP) sum = fmaf(to_f32(g[c]), to_f32(x[c]), sum);
    sum = warp_all<op_sum>(sum);
    if (to && threadIdx.x % WARP == 0) *to = sum;
  }
}

#define MHC_KERNEL(name)                                                                                      \
  KERNEL_BY_DTYPE(mhc_post_res_##name, (MHC_THREADS), (const __grid_constant__ tigon_mhc_post_res_problem p), \
                  __shared__ float w[TIGON_MHC_STREAMS * (TIGON_MHC_STREAMS + 1)];                            \
                  mhc_##name<T>(mhc_token<T>(p, blockIdx.x, w)))
MHC_KERNEL(fwd_few)
MHC_KERNEL(bwd_few)
MHC_KERNEL(fwd_any)
MHC_KERNEL(bwd_any)
