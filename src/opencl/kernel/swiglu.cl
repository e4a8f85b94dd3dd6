#include "map.cl"

/* The gate's argument and the other factor; a NaN is not beyond the limit and stays. */
static inlined vf gate_argument(const map_numbers *k, vf a) {
  return k->gate_mult * either(a > k->limit, (vf)(k->limit), a);
}
static inlined vf gate_up(const map_numbers *k, vf b) {
  return either(b > k->limit, (vf)(k->limit), either(b < -k->limit, (vf)(-k->limit), b)) + k->up_offset;
}

static inlined void backward(const map_numbers *k, const vf *in, vf *out) {
  const vf d = in[0] * k->down_mult;
  vf value;
  const vf slope = silu_slope(gate_argument(k, in[1]), &value);
  out[0] = either(in[1] > k->limit, (vf)(0.0f), d * gate_up(k, in[2]) * slope * k->gate_mult);
  out[1] = either(fabs(in[2]) > k->limit, (vf)(0.0f), d * value);
}

MAP_KERNEL(swiglu_fwd, 2, 1, out[0] = silu(gate_argument(&k, in[0])) * k.down_mult * gate_up(&k, in[1]))
MAP_KERNEL(swiglu_bwd, 3, 2, backward(&k, in, out))
