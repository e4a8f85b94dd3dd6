/* rms_norm in 8 bits. A team sweeps its row three times: for its sum, for the largest |y|, and for q. The last two sweeps find the row in
 * the L1 or L2. */
#include <cuda_fp8.h>

#include "cuda/kernel/norm_fwd.cuh"

/* N elements of q: one, or as many as a pack of x has. */
template <int N> __device__ inline void store_bytes(uint8_t *at, const uint8_t (&bytes)[N]) {
  unsigned words[(N + 3) / 4] = {0};
#pragma unroll
  for (int j = 0; j < N; ++j) words[j / 4] |= (unsigned)bytes[j] << 8 * (j % 4);
  if constexpr (N == 1)
    *at = bytes[0];
  else if constexpr (N == 4)
    *(unsigned *)at = words[0];
  else
    *(uint2 *)at = uint2{words[0], words[1]};
}

/* NaN is 0 in i8. */
__device__ static inline uint8_t quantised(float v, tigon_dtype dtype) {
  if (dtype == TIGON_I8) return (uint8_t)max(-127, min(127, __float2int_rn(v)));
  return __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
}

template <class T, norm_kind KIND, int N>
__device__ inline void quantise_rows(const tigon_norm_fwd_problem &p, const norm_walk &walk) {
  __shared__ team_space<1> space;
  const norm_lane lane = norm_lane_of<N>(walk.team);
  const team &t = lane.t;
  int turn = 0;
  for (int64_t r = (int64_t)blockIdx.x * t.count + t.index; r < p.space.rows; r += (int64_t)gridDim.x * t.count) {
    const T *x = row_of<T>(p.space, p.x, r);
    norm_out<T> out = norm_out_of<T, KIND>(p, r);
    const auto values = [&](int64_t c, float(&y)[N]) {
      float v[N];
      norm_given<N> given;
      norm_load<T>(x + c, v);
      norm_give<T, KIND>(p, out, c, given);
      norm_values<T, KIND>(out, v, given, y);
    };
    double all[1] = {0};
    norm_strips(lane.first, p.cols, lane.step, all, [&](int64_t i, float(&part)[1]) {
      float v[N];
      norm_load<T>(x + i, v);
#pragma unroll
      for (int j = 0; j < N; ++j) part[0] = fmaf(v[j], v[j], part[0]);
    });
    float sum[1] = {(float)all[0]}, largest[1] = {0};
    team_all<op_sum>(t, space, turn, sum);
    norm_statistics(p, r, false, sum[0], out);
    for (int64_t c = lane.first; c < p.cols; c += lane.step) {
      float y[N];
      values(c, y);
#pragma unroll
      for (int j = 0; j < N; ++j) largest[0] = op_max::of(largest[0], fabsf(y[j]));
    }
    team_all<op_max>(t, space, turn ^ 1, largest);
    const float quotient = largest[0] / (p.q_dtype == TIGON_I8 ? 127.0f : 448.0f);
    const float scale = quotient < 0x1p-126f ? 1 : quotient;
    if (t.rank == 0) p.q_scale[r] = scale;
    uint8_t *q = row_of<uint8_t>(p.space, p.q, r);
    for (int64_t c = lane.first; c < p.cols; c += lane.step) {
      float y[N];
      uint8_t bytes[N];
      values(c, y);
#pragma unroll
      for (int j = 0; j < N; ++j) bytes[j] = quantised(y[j] / scale, p.q_dtype);
      store_bytes(q + c, bytes);
    }
  }
}

#define QUANTISED_RMS_NORM(name, count)                                                     \
  KERNEL_BY_DTYPE(quantised_rms_norm_##name, (NORM_MOST_THREADS),                           \
                  (const __grid_constant__ tigon_norm_fwd_problem p, const norm_walk walk), \
                  if (p.z.data) quantise_rows<T, NORM_GATED, count>(p, walk);               \
                  else quantise_rows<T, NORM_RMS, count>(p, walk))
QUANTISED_RMS_NORM(wide, pack<T>::N)
QUANTISED_RMS_NORM(any, 1)
