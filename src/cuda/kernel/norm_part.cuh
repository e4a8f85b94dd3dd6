/* Moments of elements in parts. A lane's sums are about the mean of its first pack. When lanes and warps are joined, their sums move to the
 * mean of all (Chan, Golub, LeVeque 1979). So in every row a sum of squares is at most a few times the sum about the mean. No row is
 * read again for a better center. */
#ifndef TIGON_CUDA_KERNEL_NORM_PART_CUH
#define TIGON_CUDA_KERNEL_NORM_PART_CUH

#include "cuda/kernel/norm.cuh"

/* Nearly 1 / count. */
__device__ static inline float norm_share(float count) {
  float share;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(count));
  return share;
}

/* The sums of d = x - center and of d^2. The caller knows the number of elements. */
struct norm_part {
  float center, sum, squares;
};

/* The same part of n elements, about another center. */
__device__ static inline void norm_part_move(norm_part &a, float n, float center) {
  const float d = a.center - center, sum = fmaf(n, d, a.sum);
  a = norm_part{center, sum, fmaf(d, a.sum + sum, a.squares)};
}

/* Joins the parts of a warp's lanes, or of `lanes` neighbours. This lane has n elements of `all`. Each lane gets the part of all. The
 * common center comes from the first lane, so a row of one value has differences of 0. */
__device__ static inline void norm_part_join(norm_part &a, float n, float all) {
  const float pivot = __shfl_sync(0xffffffffu, a.center, 0);
  const float total = warp_all<op_sum>(fmaf(n, a.center - pivot, a.sum));
  norm_part_move(a, n, norm_center(fmaf(total, norm_share(all), pivot)));
  a.sum = warp_all<op_sum>(a.sum), a.squares = warp_all<op_sum>(a.squares);
}
__device__ static inline void norm_part_join(norm_part &a, float n, float all, int lanes) {
  const float pivot = __shfl_sync(0xffffffffu, a.center, 0);
  float total = fmaf(n, a.center - pivot, a.sum);
  for (int d = lanes / 2; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffffu, total, d);
  norm_part_move(a, n, norm_center(fmaf(total, norm_share(all), pivot)));
  for (int d = lanes / 2; d > 0; d /= 2) {
    a.sum += __shfl_xor_sync(0xffffffffu, a.sum, d);
    a.squares += __shfl_xor_sync(0xffffffffu, a.squares, d);
  }
}

/* The part of a lane's packs, which are `step` elements apart. The lane has those below `left`, and the others are 0. */
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

#endif
