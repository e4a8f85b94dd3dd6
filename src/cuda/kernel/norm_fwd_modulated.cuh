/* Plain rows of modulated_rms_norm, forward. A team has several rows that share a scale and a shift, and loads these once. The rows wait in
 * shared memory while their sums are made, because w, scale and shift take the registers. */
#ifndef TIGON_CUDA_KERNEL_NORM_FWD_MODULATED_CUH
#define TIGON_CUDA_KERNEL_NORM_FWD_MODULATED_CUH

#include "cuda/kernel/norm_fwd.cuh"

extern __shared__ uint4 norm_stash[]; /* [ROWS][PACKS][threads of the block]: each thread reads what it wrote */

/* A thread has PACKS packs of each row. At the end of a group a team may have fewer rows. */
template <class T> __device__ inline void modulated_fwd_stashed(const norm_plain &p) {
  constexpr int N = pack<T>::N, PACKS = NORM_GROUP_PACKS, ROWS = NORM_GROUP_ROWS;
  __shared__ team_space<ROWS> space;
  const team t = team_of(p.team);
  const int first = t.rank * N, step = t.threads * N, left = p.cols - first;
  const int64_t parts = (p.share + ROWS - 1) / ROWS; /* parts of a group, each with a team's rows */
  const int64_t part = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) >> (31 - __clz(p.team)), group = part / parts;
  const int64_t before = (part - group * parts) * ROWS, r = group * p.share + before;
  const int rows = p.share - before < ROWS ? (int)(p.share - before) : ROWS;
  if (r >= p.rows) return; /* the whole team returns */
  const auto mine = [&](int i, int k) -> uint4 & { return norm_stash[(i * PACKS + k) * blockDim.x + threadIdx.x]; };
  float sums[ROWS] = {0};
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    const T *x = norm_row<T>(p, p.x, r + i) + first;
    uint4 bits[PACKS];
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      bits[k] = uint4{0, 0, 0, 0};
      if (k * step < left && i < rows) bits[k] = *(const uint4 *)(x + k * step);
    }
#pragma unroll
    for (int k = 0; k < PACKS; ++k) {
      float v[N], part_sum = 0;
      unpack(pack_of<T>(bits[k]), v);
      mine(i, k) = bits[k];
#pragma unroll
      for (int j = 0; j < N; ++j) part_sum = fmaf(v[j], v[j], part_sum);
      sums[i] += part_sum;
    }
  }
  norm_out<T> out = norm_out_of<T, NORM_MODULATED>(p, r);
  uint4 weights[PACKS], scales[PACKS], shifts[PACKS]; /* loaded while the sums are joined */
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    weights[k] = scales[k] = shifts[k] = uint4{0, 0, 0, 0};
    if (k * step >= left) continue;
    if (p.w) weights[k] = __ldg((const uint4 *)((const T *)p.w + first + k * step));
    if (out.scale) scales[k] = *(const uint4 *)((const T *)out.scale + first + k * step);
    if (out.shift) shifts[k] = *(const uint4 *)((const T *)out.shift + first + k * step);
  }
  team_all<op_sum>(t, space, 0, sums);
#pragma unroll
  for (int i = 0; i < ROWS; ++i) {
    norm_statistics(p, r + i, t.rank == 0 && i < rows, sums[i], out);
    sums[i] = out.rstd;
  }
#pragma unroll
  for (int k = 0; k < PACKS; ++k) {
    if (k * step >= left) continue;
    norm_given<N> given;
    unpack(pack_of<T>(weights[k]), given.w);
    unpack(pack_of<T>(scales[k]), given.scale);
    unpack(pack_of<T>(shifts[k]), given.b);
#pragma unroll
    for (int j = 0; j < N; ++j) given.w[j] += p.w_offset;
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      if (i >= rows) break;
      float v[N];
      unpack(pack_of<T>(mine(i, k)), v);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] *= sums[i];
      norm_round<T>(v, out.rounds);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = fmaf(1 + given.scale[j], v[j] * given.w[j], given.b[j]);
      store_pack(norm_row<T>(p, p.y, r + i) + first + k * step, packed<T>(v));
    }
  }
}

#endif
