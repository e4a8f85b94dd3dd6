#include "map.cl"

static inlined vf gelu(gelu_tail tail, vf a) {
  vf value;
  gelu_slope(tail, a, &value);
  return value;
}
static inlined void backward(gelu_tail tail, const vf *in, vf *out) {
  vf value;
  const vf slope = gelu_slope(tail, in[1], &value);
  out[0] = in[0] * in[2] * slope;
  out[1] = in[0] * value;
}

MAP_KERNEL(geglu_tanh_fwd, 2, 1, out[0] = gelu(gelu_tanh_tail(in[0]), in[0]) * in[1])
MAP_KERNEL(geglu_erf_fwd, 2, 1, out[0] = gelu(gelu_erf_tail(in[0]), in[0]) * in[1])
MAP_KERNEL(geglu_tanh_bwd, 3, 2, backward(gelu_tanh_tail(in[1]), in, out))
MAP_KERNEL(geglu_erf_bwd, 3, 2, backward(gelu_erf_tail(in[1]), in, out))
