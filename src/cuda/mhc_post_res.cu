/* mhc_post_res. Of few streams, whose rows lie on 16 bytes, a thread has a pack of each and makes all outputs of them. Of others a block
 * has a token, a thread makes an element at a time, and a warp each product of two rows. f is one more stream that comes in. */
#include "cuda/kernel/mma.cuh"
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
      : p(problem), t(token), in((int)problem.in + (problem.f.data != NULL)), out((int)problem.out), w(weights) {}
  /* By all threads. */
  __device__ void load_weights() const {
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

/* The rows of a token whose streams are at the innermost pitch. */
template <class T> struct mhc_few_rows {
  const tigon_mhc_post_res_problem &p;
  const T *x, *f;
  T *o;
  __device__ mhc_few_rows(const tigon_mhc_post_res_problem &problem, int64_t t)
      : p(problem), x(row_of<T>(p.in_space, p.x, t * p.in)), f(row_of<T>(p.tokens, p.f, t)),
        o(row_of<T>(p.out_space, p.o, t * p.out)) {}
  __device__ const T *in_row(int i) const { return i < p.in ? x + i * p.x.pitch[2] : f; }
  __device__ T *out_row(int j) const { return o + j * p.o.pitch[2]; }
};

/* Blocks with few streams have tokens in turns. Packs of a thread's columns of all rows are a stage of a ring in shared memory.
 * The next stages are on their way. Only the thread itself reads them. [stages, rows, MHC_THREADS] */
extern __shared__ uint4 mhc_ring_held[];

template <class T, bool BACKWARD> struct mhc_ring {
  static constexpr int N = pack<T>::N, PANEL = MHC_THREADS * N;
  const tigon_mhc_post_res_problem &p;
  const int in, out, rows, stages;
  int64_t next, next_panel = 0; /* what is fetched next: a token, and which of its columns */
  int filled = 0, taken = 0;    /* stage */
  float dot[MHC_FEW][MHC_FEW + 1];

  __device__ mhc_ring(const tigon_mhc_post_res_problem &problem, int of)
      : p(problem), in((int)problem.in + (problem.f.data != NULL)), out((int)problem.out),
        rows(BACKWARD ? in + out : in), stages(of), next(blockIdx.x) {}
  __device__ void step(int &stage) const { stage = stage == stages - 1 ? 0 : stage + 1; }
  __device__ uint4 *held(int stage, int row) const {
    return mhc_ring_held + (stage * rows + row) * MHC_THREADS + threadIdx.x;
  }
  __device__ void take(int row, float (&to)[N]) const { unpack(pack_of<T>(*held(taken, row)), to); }

  __device__ void fetch() {
    const int64_t c = next_panel * PANEL + (int)threadIdx.x * N;
    if (next < p.tokens.rows && c < p.cols) {
      const mhc_few_rows<T> k(p, next);
#pragma unroll
      for (int i = 0; i <= MHC_FEW; ++i)
        if (i < in) cp_async((unsigned)__cvta_generic_to_shared(held(filled, i)), k.in_row(i) + c, true);
#pragma unroll
      for (int j = 0; j < MHC_FEW; ++j)
        if (BACKWARD && j < out)
          cp_async((unsigned)__cvta_generic_to_shared(held(filled, in + j)), k.out_row(j) + c, true);
    }
    cp_async_commit();
    step(filled);
    if ((++next_panel) * PANEL < p.cols) return;
    next_panel = 0;
    next += gridDim.x;
  }

  /* The thread's one of a token's weights [out, in with f]. */
  __device__ float weight_of(int64_t t) const {
    const int e = (int)threadIdx.x;
    if (e >= in * out || t >= p.tokens.rows) return 0;
    const int j = e / in, i = e % in;
    return i < p.in ? ((const float *)p.h_res.data)[(t * out + j) * p.in + i]
                    : ((const float *)p.h_post.data)[t * out + j];
  }

  __device__ void mix(const float *w, T *o, int64_t c) {
    float sum[MHC_FEW][N] = {{0}};
#pragma unroll
    for (int i = 0; i <= MHC_FEW; ++i) {
      if (i >= in) break;
      float x[N];
      take(i, x);
#pragma unroll
      for (int j = 0; j < MHC_FEW; ++j)
        if (j < out)
#pragma unroll
          for (int e = 0; e < N; ++e) sum[j][e] = fmaf(w[j * in + i], x[e], sum[j][e]);
    }
#pragma unroll
    for (int j = 0; j < MHC_FEW; ++j)
      if (j < out) store_pack(o + j * p.o.pitch[2] + c, packed<T, N>(sum[j]));
  }

  /* dx, df: the token's; NULL: not wanted. */
  __device__ void mix_back(const float *w, T *dx, T *df, int64_t c) {
    uint4 g_held[MHC_FEW];
#pragma unroll
    for (int j = 0; j < MHC_FEW; ++j)
      if (j < out) g_held[j] = *held(taken, in + j);
#pragma unroll
    for (int i = 0; i <= MHC_FEW; ++i) {
      if (i >= in) break;
      float x[N], sum[N] = {0};
      take(i, x);
#pragma unroll
      for (int j = 0; j < MHC_FEW; ++j) {
        if (j >= out) continue;
        float g[N];
        keep_packed(g_held[j]); /* for want of registers */
        unpack(pack_of<T>(g_held[j]), g);
#pragma unroll
        for (int e = 0; e < N; ++e) {
          sum[e] = fmaf(w[j * in + i], g[e], sum[e]);
          dot[j][i] = fmaf(g[e], x[e], dot[j][i]);
        }
      }
      if (i < p.in) {
        if (dx) store_pack(dx + i * p.dx.pitch[2] + c, packed<T, N>(sum));
      } else if (df) {
        store_pack(df + c, packed<T, N>(sum));
      }
    }
  }

  /* What the warp has of dot: those of FEW streams, [out, in], and those of one more. */
  __device__ void add_up(float (&part)[MHC_FEW * (MHC_FEW + 1)]) const {
    float of[MHC_FEW * MHC_FEW], more[MHC_FEW];
#pragma unroll
    for (int j = 0; j < MHC_FEW; ++j) {
#pragma unroll
      for (int i = 0; i < MHC_FEW; ++i) of[j * MHC_FEW + i] = dot[j][i];
      more[j] = dot[j][MHC_FEW];
    }
    const int lane = (int)threadIdx.x % WARP;
    const float first = warp_each(of), second = warp_each(more);
    if (lane % 2 == 0) part[lane / 2] = first;
    if (lane % 8 == 0) part[MHC_FEW * MHC_FEW + lane / 8] = second;
  }

  __device__ void run() {
    __shared__ float w[2][MHC_FEW * (MHC_FEW + 1)], parts[2][WARPS][MHC_FEW * (MHC_FEW + 1)];
    const int e = (int)threadIdx.x;
    for (int k = 0; k < stages - 1; ++k) fetch();
    if (e < in * out) w[0][e] = weight_of(blockIdx.x);
    __syncthreads();
    int turn = 0;
    for (int64_t t = blockIdx.x; t < p.tokens.rows; t += gridDim.x, turn ^= 1) {
      const mhc_token<T> k(p, t, w[turn]);
      T *o = BACKWARD ? NULL : row_of<T>(p.out_space, p.o, t * out);
      T *dx = BACKWARD && p.dx.data ? row_of<T>(p.in_space, p.dx, t * p.in) : NULL;
      T *df = BACKWARD && p.df.data ? row_of<T>(p.tokens, p.df, t) : NULL;
      const float next_weight = weight_of(t + gridDim.x);
#pragma unroll
      for (int j = 0; j < MHC_FEW; ++j)
#pragma unroll
        for (int i = 0; i <= MHC_FEW; ++i) dot[j][i] = 0;
      for (int64_t first = 0; first < p.cols; first += PANEL) {
        const int64_t c = first + e * N;
        if (stages == MHC_RING)
          cp_async_wait_for<MHC_RING - 2>();
        else
          cp_async_wait_for<0>();
        fetch();
        if (c < p.cols) {
          if constexpr (BACKWARD)
            mix_back(k.w, dx, df, c);
          else
            mix(k.w, o, c);
        }
        step(taken);
      }
      if (BACKWARD) add_up(parts[turn][e / WARP]);
      if (e < in * out) w[turn ^ 1][e] = next_weight;
      __syncthreads();
      if (!BACKWARD || e >= MHC_FEW * (MHC_FEW + 1)) continue;
      const bool first = e < MHC_FEW * MHC_FEW;
      const int j = first ? e / MHC_FEW : e % MHC_FEW, i = first ? e % MHC_FEW : MHC_FEW;
      float *to = j < out && i < in ? k.dw(j, i) : NULL;
      float sum = 0;
      for (int warp = 0; warp < WARPS; ++warp) sum += parts[turn][warp][e];
      if (to) *to = sum;
    }
  }
};

template <class T> __device__ inline void mhc_fwd_any(const mhc_token<T> &k) {
  k.load_weights();
  for (int64_t c = threadIdx.x; c < k.p.cols; c += MHC_THREADS)
    for (int j = 0; j < k.out; ++j) {
      float sum = 0;
      for (int i = 0; i < k.in; ++i) sum = fmaf(k.w[j * k.in + i], to_f32(k.in_row(i)[c]), sum);
      k.out_row(j)[c] = from_f32<T>(sum);
    }
}

template <class T> __device__ inline void mhc_bwd_any(const mhc_token<T> &k) {
  k.load_weights();
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

#define MHC_FEW_KERNEL(name, blocks, backward)                                              \
  KERNEL_BY_DTYPE(mhc_post_res_##name, (MHC_THREADS, blocks),                               \
                  (const __grid_constant__ tigon_mhc_post_res_problem p, const int stages), \
                  (mhc_ring<T, backward>(p, stages).run()))
#define MHC_ANY_KERNEL(name)                                                                                  \
  KERNEL_BY_DTYPE(mhc_post_res_##name, (MHC_THREADS), (const __grid_constant__ tigon_mhc_post_res_problem p), \
                  __shared__ float w[TIGON_MHC_STREAMS * (TIGON_MHC_STREAMS + 1)];                            \
                  mhc_##name<T>(mhc_token<T>(p, blockIdx.x, w)))
MHC_FEW_KERNEL(fwd_few, MHC_FWD_BLOCKS, false)
MHC_FEW_KERNEL(bwd_few, MHC_BWD_BLOCKS, true)
MHC_ANY_KERNEL(fwd_any)
MHC_ANY_KERNEL(bwd_any)
