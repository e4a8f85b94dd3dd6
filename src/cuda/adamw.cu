/* adamw: the tensors of a launch are cut into chunks, numbered across them, and a block has one. The squares of the gradients are
 * added up in f64, which no square of an f32 overflows or underflows, by a fixed number of blocks. */
#include "cuda/adamw.h"
#include "cuda/kernel/element.cuh"
#include "cuda/kernel/team.cuh"

/* ---- step ---- */

/* L elements from i on. */
template <int L> __device__ inline void load_some(const float *at, int64_t i, float (&to)[L]) {
  if constexpr (L == 1) {
    to[0] = at[i];
  } else {
    const float4 v = *(const float4 *)(at + i);
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  }
}
template <int L> __device__ inline void store_some(float *at, int64_t i, const float (&from)[L]) {
  if constexpr (L == 1)
    at[i] = from[0];
  else
    *(float4 *)(at + i) = float4{from[0], from[1], from[2], from[3]};
}
template <int L, class T> __device__ inline void load_some(const T *at, int64_t i, float (&to)[L]) {
  if constexpr (L == 1) {
    to[0] = to_f32(at[i]);
  } else {
    const uint2 bits = *(const uint2 *)(at + i);
    widen(bits.x, to, T());
    widen(bits.y, to + 2, T());
  }
}
template <int L, class T> __device__ inline void store_some(T *at, int64_t i, const float (&from)[L]) {
  if constexpr (L == 1)
    at[i] = from_f32<T>(from[0]);
  else
    *(uint2 *)(at + i) = uint2{narrow(from, T()), narrow(from + 2, T())};
}

/* value -= decay * value + rate * m / (sqrt(v) * root + eps) */
__device__ static inline void update(const adamw_batch &b, float decay, float grad, float clip, float &value, float &m,
                                     float &v) {
  const float g = grad * clip;
  m = fmaf(b.beta1, m, b.rest1 * g);
  v = fmaf(b.beta2, v, b.rest2 * (g * g));
  const float move = b.rate * m / fmaf(sqrtf(v), b.root, b.eps);
  value = fmaf(-decay, value, value) - move;
}

/* L elements of each of EACH steps of a thread, all loaded before the first is worked on. */
template <class T, class G, bool MASTER, int L, int EACH>
__device__ inline void step_some(const adamw_batch &b, const adamw_tensor &t, float clip, int64_t first, int64_t end) {
  float m[EACH][L], v[EACH][L], grad[EACH][L], value[EACH][L];
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int64_t i = first + k * ADAMW_THREADS * L;
    if (i + L > end) continue;
    load_some<L>(t.exp_avg, i, m[k]);
    load_some<L>(t.exp_avg_sq, i, v[k]);
    load_some<L>((const G *)t.grad, i, grad[k]);
    if constexpr (MASTER)
      load_some<L>((const float *)t.master, i, value[k]);
    else
      load_some<L>((const T *)t.param, i, value[k]);
  }
#pragma unroll
  for (int k = 0; k < EACH; ++k) {
    const int64_t i = first + k * ADAMW_THREADS * L;
    if (i + L > end) continue;
#pragma unroll
    for (int j = 0; j < L; ++j) update(b, t.decay, grad[k][j], clip, value[k][j], m[k][j], v[k][j]);
    store_some<L>(t.exp_avg, i, m[k]);
    store_some<L>(t.exp_avg_sq, i, v[k]);
    if constexpr (MASTER) store_some<L>((float *)t.master, i, value[k]);
    store_some<L>((T *)t.param, i, value[k]);
  }
}

template <class T, class G, bool MASTER>
__device__ inline void step_chunk(const adamw_batch &b, const adamw_tensor &t, int64_t chunk) {
  constexpr int L = ADAMW_LANES, EACH = 2;
  const float clip = b.clip_factor ? *b.clip_factor : 1.0f;
  const int64_t begin = chunk * ADAMW_CHUNK, end = begin + ADAMW_CHUNK < t.count ? begin + ADAMW_CHUNK : t.count;
  const int64_t packed = t.wide ? begin + (end - begin) / L * L : begin;
  for (int64_t i = begin + threadIdx.x * L; i < packed; i += EACH * ADAMW_THREADS * L)
    step_some<T, G, MASTER, L, EACH>(b, t, clip, i, packed);
  for (int64_t i = packed + threadIdx.x; i < end; i += ADAMW_THREADS) step_some<T, G, MASTER, 1, 1>(b, t, clip, i, end);
}

template <class T> __device__ inline void step(const adamw_batch &b) {
  int which = 0;
  while (b.of[which].chunks <= blockIdx.x) ++which;
  const adamw_tensor &t = b.of[which];
  const int64_t chunk = blockIdx.x - (which > 0 ? b.of[which - 1].chunks : 0);
  if (sizeof(T) == 4 || t.grad_f32) {
    if (t.master)
      step_chunk<T, float, true>(b, t, chunk);
    else
      step_chunk<T, float, false>(b, t, chunk);
  } else {
    if (t.master)
      step_chunk<T, T, true>(b, t, chunk);
    else
      step_chunk<T, T, false>(b, t, chunk);
  }
}

KERNEL_BY_DTYPE(adamw_step, (ADAMW_THREADS, 3), (const __grid_constant__ adamw_batch b), step<T>(b))

/* ---- clip ---- */

__device__ static inline double add_square(double sum, float g) { return fma((double)g, (double)g, sum); }

/* This thread's share of a tensor's elements: packs, and single elements after them. */
template <class T> __device__ inline double squares(const adamw_grad &g, int64_t thread, int64_t threads) {
  constexpr int N = pack<T>::N, EACH = 4;
  const T *data = (const T *)g.data;
  const int64_t packs = g.wide ? g.count / N : 0;
  double sum[2] = {0, 0};
  for (int64_t first = thread; first < packs; first += EACH * threads) {
    pack<T, N> x[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      const int64_t i = first + k * threads;
      x[k] = i < packs ? load_pack<T, N>(data + i * N) : zero_pack<T, N>();
    }
#pragma unroll
    for (int k = 0; k < EACH; ++k) {
      float v[N];
      unpack<T, N>(x[k], v);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j % 2] = add_square(sum[j % 2], v[j]);
    }
  }
#pragma unroll 4
  for (int64_t i = packs * N + thread; i < g.count; i += threads) sum[0] = add_square(sum[0], to_f32(data[i]));
  return sum[0] + sum[1];
}

/* The sum of v over the block, in thread 0. */
template <int THREADS> __device__ inline double block_sum(double v) {
  __shared__ double warps[THREADS / WARP];
  v = warp_all<op_sum>(v);
  if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = v;
  __syncthreads();
  double sum = 0;
  for (int w = 0; w < THREADS / WARP; ++w) sum += warps[w];
  return sum;
}

extern "C" __global__ void __launch_bounds__(ADAMW_CLIP_THREADS)
    adamw_squares(const __grid_constant__ adamw_clip_batch b) {
  const int64_t thread = (int64_t)blockIdx.x * ADAMW_CLIP_THREADS + threadIdx.x;
  const int64_t threads = (int64_t)TIGON_ADAMW_PARTIALS * ADAMW_CLIP_THREADS;
  double sum = 0;
  for (int i = 0; i < b.tensors; ++i) {
    const adamw_grad &g = b.of[i];
    sum += g.dtype == TIGON_F32   ? squares<float>(g, thread, threads)
           : g.dtype == TIGON_F16 ? squares<f16>(g, thread, threads)
                                  : squares<bf16>(g, thread, threads);
  }
  sum = block_sum<ADAMW_CLIP_THREADS>(sum);
  if (threadIdx.x == 0) b.partials[blockIdx.x] = b.first ? sum : b.partials[blockIdx.x] + sum;
}

extern "C" __global__ void __launch_bounds__(TIGON_ADAMW_PARTIALS)
    adamw_factor(const __grid_constant__ tigon_adamw_clip_problem p) {
  const double sum = block_sum<TIGON_ADAMW_PARTIALS>(p.partials[threadIdx.x]), norm = sqrt(sum);
  if (threadIdx.x > 0) return;
  *p.norm = (float)norm;
  *p.factor = p.max_norm > 0 && norm > p.max_norm ? (float)(p.max_norm / norm) : norm != norm ? (float)norm : 1.0f;
}
