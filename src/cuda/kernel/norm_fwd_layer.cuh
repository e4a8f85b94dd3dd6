/* Plain rows of layer_norm forward, held or swept twice as norm_fwd.cuh's are, but for their sums: a lane's are about the mean of its first
 * pack, and where those of lanes and warps are joined, they are moved to the mean of all of these (Chan, Golub, LeVeque 1979). A sum of
 * squares is so at most a few times that about the mean, whatever the row is like, and no row is read again for a better center. */
#ifndef TIGON_CUDA_KERNEL_NORM_FWD_LAYER_CUH
#define TIGON_CUDA_KERNEL_NORM_FWD_LAYER_CUH

#include <type_traits>

#include "cuda/kernel/norm_fwd.cuh"

/* Nearly 1 / count. */
__device__ static inline float norm_share(float count) {
  float share;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(count));
  return share;
}

/* The sums of d = x - center and of d^2 over elements whose number is known elsewhere. */
struct norm_part {
  float center, sum, squares;
};

/* Of n elements: their sum; the same part about another center. */
__device__ static inline float norm_part_total(const norm_part &a, float n) { return fmaf(n, a.center, a.sum); }
__device__ static inline void norm_part_move(norm_part &a, float n, float center) {
  const float d = a.center - center, sum = fmaf(n, d, a.sum);
  a = norm_part{center, sum, fmaf(d, a.sum + sum, a.squares)};
}

/* a's n elements and b's m. */
__device__ static inline void norm_part_merge(norm_part &a, float n, norm_part b, float m) {
  const float total = norm_part_total(a, n) + norm_part_total(b, m), center = norm_center(total * norm_share(n + m));
  norm_part_move(a, n, center), norm_part_move(b, m, center);
  a.sum += b.sum, a.squares += b.squares;
}

/* Of a warp's lanes, this with n elements of `all`, or of `lanes` side by side: each has the part of all. */
__device__ static inline void norm_part_join(norm_part &a, float n, float all) {
  const float total = warp_all<op_sum>(norm_part_total(a, n));
  norm_part_move(a, n, norm_center(total * norm_share(all)));
  a.sum = warp_all<op_sum>(a.sum), a.squares = warp_all<op_sum>(a.squares);
}
__device__ static inline void norm_part_join(norm_part &a, float n, float all, int lanes) {
  float total = norm_part_total(a, n);
  for (int d = lanes / 2; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
  norm_part_move(a, n, norm_center(total * norm_share(all)));
  for (int d = lanes / 2; d > 0; d /= 2) {
    a.sum += __shfl_xor_sync(0xffffffffu, a.sum, d);
    a.squares += __shfl_xor_sync(0xffffffffu, a.squares, d);
  }
}

/* Of a lane's packs, `step` columns apart, of which it has those below `left`, the others being 0. */
template <class T, int PACKS> __device__ inline norm_part norm_part_of(uint4 (&packs)[PACKS], int step, int left) {
  constexpr int N = pack<T>::N;
  float v[N];
  unpack(pack_of<T>(packs[0]), v);
#pragma unroll
  for (int d = N / 2; d > 0; d /= 2)
#pragma unroll
    for (int j = 0; j < d; ++j) v[j] += v[j + d];
  norm_part a = {norm_center(v[0] * (1.0f / N)), 0, 0};
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    float sums[2] = {0, 0};
    keep_packed(packs[k]);
    norm_add_pack<T>(packs[k], k * step < left ? a.center : 0, sums);
    a.sum += sums[0], a.squares += sums[1];
  }
  return a;
}

/* The row's statistics, of its part: what an output is made of. */
template <class T>
__device__ inline void norm_statistics(const norm_plain &p, int64_t r, bool stores, const norm_part &a,
                                       norm_out<T> &out) {
  const float count = (float)p.cols, rest = a.sum * norm_share(count), squares = fmaf(-a.sum, rest, a.squares);
  out.rstd = norm_rsqrt_mean(squares < 0 ? 0 : squares, count, p.eps);
  out.center = a.center, out.rest = -rest * out.rstd;
  if (p.rstd && stores) p.rstd[r] = out.rstd;
  if (p.mean && stores) p.mean[r] = a.center + rest;
}

/* Packs of w and b, ones and zeros without them or where `has` is false. */
template <class T> __device__ inline uint4 norm_ones() {
  const uint32_t one = sizeof(T) == 4 ? 0x3f800000 : std::is_same<T, f16>::value ? 0x3c003c00 : 0x3f803f80;
  return uint4{one, one, one, one};
}
template <class T>
__device__ inline void norm_fetch(const norm_plain &p, int64_t c, bool has, uint4 &weights, uint4 &biases) {
  weights = norm_ones<T>(), biases = uint4{0, 0, 0, 0};
  if (p.w && has) weights = __ldg((const uint4 *)((const T *)p.w + c));
  if (p.b && has) biases = __ldg((const uint4 *)((const T *)p.b + c));
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

/* A warp's packs lie side by side, a lane has every 32nd of them: their addresses differ by constants. */
template <class T, int PACKS> __device__ inline void norm_fwd_layer_held(const norm_plain &p) {
  constexpr int N = pack<T>::N, STEP = WARP * N, SPAN = PACKS * STEP; /* columns of a warp */
  constexpr bool EARLY =
      !std::is_same<T, f16>::value || PACKS < 4; /* four packs of f16 are unpacked but once, and spill */
  __shared__ float4 parts[MOST_WARPS];
  const int rank = (int)threadIdx.x & (p.team - 1), lane = rank % WARP, warp = rank / WARP, warps = p.team / WARP;
  const int first = warp * SPAN + lane * N, left = p.cols - first;
  const int64_t r = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) >> (31 - __clz(p.team));
  if (r >= p.rows) return; /* a whole team */
  const T *x = norm_row<T>(p, p.x, r) + first;
  uint4 kept[PACKS], weights[PACKS], biases[PACKS];
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    kept[k] = uint4{0, 0, 0, 0};
    if (k * STEP < left) kept[k] = *(const uint4 *)(x + k * STEP);
  }
#pragma unroll
  for (int k = 0; EARLY && k < PACKS; ++k) norm_fetch<T>(p, first + k * STEP, k * STEP < left, weights[k], biases[k]);
  const auto columns = [&](int of_warp) { return (float)max(0, min(SPAN, p.cols - of_warp * SPAN)); };
  norm_part a = norm_part_of<T>(kept, STEP, left);
  norm_part_join(a, (float)(N * max(0, min(PACKS, (left + STEP - 1) / STEP))), columns(warp));
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
    if (!EARLY) norm_fetch<T>(p, first + k * STEP, k * STEP < left, weights[k], biases[k]);
    const pack<T> y = norm_layer_output(out, kept[k], weights[k], biases[k]);
    if (k * STEP < left) store_pack(out.y + k * STEP, y);
  }
}

/* As norm_fwd_swept(); a lane joins its groups of PACKS packs as it goes. */
template <class T, int PACKS> __device__ inline void norm_fwd_layer_swept(const norm_plain &p) {
  constexpr int N = pack<T>::N, STEP = NORM_SWEPT_THREADS * N, WARPS = NORM_SWEPT_THREADS / WARP;
  static_assert(WARPS == WARP, "a lane has the part of a warp");
  __shared__ float4 parts[WARPS];
  const int64_t r = blockIdx.x;
  const int own = (int)threadIdx.x * N, lane = (int)threadIdx.x % WARP;
  const T *x = norm_row<T>(p, p.x, r) + own;
  norm_part a = {0, 0, 0};
  double squares = 0; /* a's, but for those of the join under way */
  const int left = p.cols - own;
  int c = 0;
#pragma unroll 1
  for (; c + (PACKS - 1) * STEP < left; c += PACKS * STEP) {
    uint4 packs[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) packs[k] = load_to_keep(x + c + k * STEP);
    norm_part_merge(a, (float)(c / NORM_SWEPT_THREADS), norm_part_of<T>(packs, 0, 1), N * PACKS);
    squares += (double)a.squares, a.squares = 0;
  }
#pragma unroll 1
  for (; c < left; c += STEP) {
    uint4 packs[1] = {load_to_keep(x + c)};
    norm_part_merge(a, (float)(c / NORM_SWEPT_THREADS), norm_part_of<T>(packs, 0, 1), N);
    squares += (double)a.squares, a.squares = 0;
  }
  a.squares = (float)squares;
  const float n = (float)(c / NORM_SWEPT_THREADS), all = warp_all<op_sum>(n); /* elements of the lane, of the warp */
  norm_part_join(a, n, all);
  if (lane == 0) parts[threadIdx.x / WARP] = make_float4(a.center, a.sum, a.squares, all);
  __syncthreads();
  const float4 of = parts[lane];
  a = norm_part{of.x, of.y, of.z};
  norm_part_join(a, of.w, (float)p.cols);
  norm_out<T> out = {norm_row<T>(p, p.y, r) + own};
  norm_statistics(p, r, threadIdx.x == 0, a, out);
#pragma unroll 1
  for (c = 0; c < left; c += STEP) {
    uint4 weights, biases;
    const uint4 bits = load_to_drop(x + c);
    norm_fetch<T>(p, own + c, true, weights, biases);
    store_pack(out.y + c, norm_layer_output(out, bits, weights, biases));
  }
}

#endif
