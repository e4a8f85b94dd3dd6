#include "cuda/kernel/gate.cuh"

/* With factors, a clamp and an offset. A NaN is not beyond the limit and stays. */
template <class T> struct scaled {
  float gate, down, offset, limit; /* limit: Inf without a clamp */

  __device__ float input(float a) const { return gate * (a > limit ? limit : a); }
  __device__ float up(float b) const { return (b > limit ? limit : b < -limit ? -limit : b) + offset; }
  __device__ void fwd(const float (&x)[2], float (&y)[1]) const {
    y[0] = activate<T, ACT_SILU>(input(x[0])) * down * up(x[1]);
  }
  __device__ void bwd(const float (&x)[3], float (&y)[2]) const {
    const float d = x[0] * down;
    float value;
    const float slope = activate_slope<T, ACT_SILU>(input(x[1]), value);
    y[0] = x[1] > limit ? 0.0f : d * up(x[2]) * slope * gate;
    y[1] = fabsf(x[2]) > limit ? 0.0f : d * value;
  }
};

template <class T> __device__ inline scaled<T> scaled_of(const tigon_map_numbers &k) {
  return scaled<T>{k.gate_mult, k.down_mult, k.up_offset, k.clamp > 0 ? k.clamp : __int_as_float(0x7f800000)};
}

template <class T, int N> __device__ inline void fwd_rows(const tigon_map_problem &p, const map_walk &walk) {
  if (!swiglu_is_plain(&p.numbers)) {
    const scaled<T> gate = scaled_of<T>(p.numbers);
    return map_any_rows<T, N, 2, 1>(p, walk, [&](const float(&x)[2], float(&y)[1]) { gate.fwd(x, y); });
  }
  map_any_rows<T, N, 2, 1>(p, walk, gate_fwd<T, ACT_SILU>);
}
template <class T, int N> __device__ inline void bwd_rows(const tigon_map_problem &p, const map_walk &walk) {
  if (!swiglu_is_plain(&p.numbers)) {
    const scaled<T> gate = scaled_of<T>(p.numbers);
    return map_any_rows<T, N, 3, 2>(p, walk, [&](const float(&x)[3], float(&y)[2]) { gate.bwd(x, y); });
  }
  map_any_rows<T, N, 3, 2>(p, walk, gate_bwd<T, ACT_SILU>);
}

MAP_PLAIN(swiglu_fwd, 6, 2, 1, (gate_fwd<T, ACT_SILU>))
MAP_ROWS(swiglu_fwd, 6, fwd_rows<T, N>(p, walk))
MAP_PLAIN(swiglu_bwd, 5, 3, 2, (gate_bwd<T, ACT_SILU>))
MAP_ROWS(swiglu_bwd, 5, bwd_rows<T, N>(p, walk))
