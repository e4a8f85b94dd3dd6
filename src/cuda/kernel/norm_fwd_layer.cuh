/* Plain rows of layer_norm, forward. They are held or swept twice as in norm_fwd.cuh. Their sums are those of norm_part.cuh. */
#ifndef TIGON_CUDA_KERNEL_NORM_FWD_LAYER_CUH
#define TIGON_CUDA_KERNEL_NORM_FWD_LAYER_CUH

#include <type_traits>

#include "cuda/kernel/norm_fwd.cuh"
#include "cuda/kernel/norm_part.cuh"

/* Joins a's n elements with b's m, about b's center, because n may be 0. */
__device__ static inline void norm_part_merge(norm_part &a, float n, norm_part b, float m) {
  const float total = fmaf(n, a.center - b.center, a.sum) + b.sum;
  const float center = norm_center(fmaf(total, norm_share(n + m), b.center));
  norm_part_move(a, n, center), norm_part_move(b, m, center);
  a.sum += b.sum, a.squares += b.squares;
}

/* The row's statistics from its part, which an output needs. */
template <class T>
__device__ inline void norm_statistics(const norm_plain &p, int64_t r, bool stores, const norm_part &a,
                                       norm_out<T> &out) {
  const float count = (float)p.cols, rest = a.sum * norm_share(count), squares = fmaf(-a.sum, rest, a.squares);
  out.rstd = norm_rsqrt_mean(squares < 0 ? 0 : squares, count, p.eps);
  out.center = a.center, out.rest = -rest * out.rstd;
  if (p.rstd && stores) p.rstd[r] = out.rstd;
  if (p.mean && stores) p.mean[r] = a.center + rest;
}

/* Packs of w and b: ones and zeros without them, or where `has` is false. In a WHOLE row it is true everywhere. */
template <class T> __device__ inline uint4 norm_ones() {
  const uint32_t one = sizeof(T) == 4 ? 0x3f800000 : std::is_same<T, f16>::value ? 0x3c003c00 : 0x3f803f80;
  return uint4{one, one, one, one};
}
template <class T, bool WHOLE>
__device__ inline void norm_fetch(const norm_plain &p, int64_t c, bool has, uint4 &weights, uint4 &biases) {
  if (!WHOLE) weights = norm_ones<T>(), biases = uint4{0, 0, 0, 0};
  if (WHOLE || (p.w && has)) weights = __ldg((const uint4 *)((const T *)p.w + c));
  if (WHOLE || (p.b && has)) biases = __ldg((const uint4 *)((const T *)p.b + c));
}
template <class T>
__device__ inline pack<T> norm_layer_output(const norm_out<T> &to, const uint4 &bits, const uint4 &weights,
                                            const uint4 &biases) {
  constexpr int N = pack<T>::N;
  float v[N], w[N], b[N];
  unpack_again<T>(bits, v);
  unpack(pack_of<T>(weights), w), unpack(pack_of<T>(biases), b);
#pragma unroll
  for (int j = 0; j < N; ++j) v[j] = fmaf(fmaf(v[j] - to.center, to.rstd, to.rest), w[j], b[j]);
  return packed<T>(v);
}

/* WHOLE: w and b are present, packs fill all threads, and a thread's packs are a team apart. Otherwise a warp's packs lie side by side, and
 * a lane has every 32nd of them. So the packs that it lacks are easily counted. */
template <class T, int PACKS, bool WHOLE> __device__ inline void norm_fwd_layer_held(const norm_plain &p) {
  constexpr int N = pack<T>::N, SPAN = PACKS * WARP * N; /* columns of a warp */
  constexpr bool EARLY = PACKS < 4 || sizeof(T) == 2;    /* four packs of f32 spill */
  __shared__ float4 parts[MOST_WARPS];
  const int rank = (int)threadIdx.x & (p.team - 1), lane = rank % WARP, warp = rank / WARP, warps = p.team / WARP;
  const int first = WHOLE ? rank * N : warp * SPAN + lane * N, step = (WHOLE ? p.team : WARP) * N,
            left = p.cols - first;
  const int64_t r = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) >> (31 - __clz(p.team));
  if (r >= p.rows) return; /* the whole team returns */
  const T *x = norm_row<T>(p, p.x, r) + first;
  const auto has = [&](int k) { return WHOLE || k * step < left; };
  uint4 kept[PACKS], weights[PACKS], biases[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    if (!WHOLE) kept[k] = uint4{0, 0, 0, 0};
    if (has(k)) kept[k] = *(const uint4 *)(x + k * step);
  }
  const auto fetch = [&](int k) { norm_fetch<T, WHOLE>(p, first + k * step, has(k), weights[k], biases[k]); };
#pragma unroll
  for (int k = 0; EARLY && k < PACKS; ++k) fetch(k);
  const auto columns = [&](int of_warp) { return (float)(WHOLE ? SPAN : max(0, min(SPAN, p.cols - of_warp * SPAN))); };
  norm_part a = norm_part_of<T>(kept, WHOLE ? 0 : step, WHOLE ? 1 : left);
  norm_part_join(a, (float)(N * (WHOLE ? PACKS : max(0, min(PACKS, (left + step - 1) / step)))), columns(warp));
  if (warps > 1) {
    if (lane == 0) parts[warp] = make_float4(a.center, a.sum, a.squares, 0);
    __syncthreads();
    const int other = lane & (warps - 1);
    const float4 of = parts[other];
    a = norm_part{of.x, of.y, of.z};
    norm_part_join(a, columns(other), (float)p.cols, warps);
  }
  norm_out<T> out = {norm_row<T>(p, p.y, r) + first};
  norm_statistics(p, r, rank == 0, a, out);
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    keep_packed(kept[k]);
    if (!EARLY) fetch(k);
    const pack<T> y = norm_layer_output(out, kept[k], weights[k], biases[k]);
    if (has(k)) store_pack(out.y + k * step, y);
  }
}

/* As norm_fwd_swept(). A lane joins each group of PACKS packs with the groups before. */
template <class T, int PACKS> __device__ inline void norm_fwd_layer_swept(const norm_plain &p) {
  constexpr int N = pack<T>::N, STEP = NORM_SWEPT_THREADS * N, WARPS = NORM_SWEPT_THREADS / WARP;
  static_assert(WARPS == WARP, "a lane has the part of a warp");
  __shared__ float4 parts[WARPS];
  const int64_t r = blockIdx.x;
  const int own = (int)threadIdx.x * N, lane = (int)threadIdx.x % WARP;
  const T *x = norm_row<T>(p, p.x, r) + own;
  const uint64_t keep = policy_to_keep(), drop = policy_to_drop();
  norm_part a = {0, 0, 0};
  double squares = 0; /* a's squares, except those of the current join */
  const int left = p.cols - own;
  int c = 0;
#pragma unroll 1
  for (; c + (PACKS - 1) * STEP < left; c += PACKS * STEP) {
    uint4 packs[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) packs[k] = load_to_keep(x + c + k * STEP, keep);
    norm_part_merge(a, (float)(c / NORM_SWEPT_THREADS), norm_part_of<T>(packs, 0, 1), N * PACKS);
    squares += (double)a.squares, a.squares = 0;
  }
#pragma unroll 1
  for (; c < left; c += STEP) {
    uint4 packs[1] = {load_to_keep(x + c, keep)};
    norm_part_merge(a, (float)(c / NORM_SWEPT_THREADS), norm_part_of<T>(packs, 0, 1), N);
    squares += (double)a.squares, a.squares = 0;
  }
  a.squares = (float)squares;
  const float n = (float)(c / NORM_SWEPT_THREADS), all = warp_all<op_sum>(n); /* elements of the lane and of the warp */
  norm_part_join(a, n, all);
  if (lane == 0) parts[threadIdx.x / WARP] = make_float4(a.center, a.sum, a.squares, all);
  __syncthreads();
  const float4 of = parts[lane];
  a = norm_part{of.x, of.y, of.z};
  norm_part_join(a, of.w, (float)p.cols);
  norm_out<T> out = {norm_row<T>(p, p.y, r) + own};
  norm_statistics(p, r, threadIdx.x == 0, a, out);
  const auto sweep = [&](auto whole) {
#pragma unroll 1
    for (unsigned at = 0; at < (left > 0 ? (unsigned)left : 0); at += STEP) {
      uint4 weights, biases;
      const uint4 bits = load_to_drop(x + at, drop);
      norm_fetch<T, decltype(whole)::value>(p, own + at, true, weights, biases);
      store_pack(out.y + at, norm_layer_output(out, bits, weights, biases));
    }
  };
  if (p.w && p.b)
    sweep(std::true_type());
  else
    sweep(std::false_type());
}

#endif
