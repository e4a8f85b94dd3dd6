#include "cpu/map.h"

/* gelu by tanh, then by erf; 16-bit dtypes have the exponential already. */
TIGON_INLINE vf gelu(bool erf, const map_in *in, vf u) {
  if (in->dtype == TIGON_F32) return vf_gelu(erf, u);
  return erf ? gelu_erf_16(u, in->early) : gelu_tanh_16(u, in->early);
}
TIGON_INLINE vf gelu_slope(bool erf, const map_in *in, vf u, vf *value) {
  if (in->dtype == TIGON_F32) return vf_gelu_slope(erf, u, value);
  return erf ? gelu_erf_slope_16(u, in->early, value) : gelu_tanh_slope_16(u, in->early, value);
}
TIGON_INLINE vf2 exp_tanh(const tigon_map_numbers *k, tigon_dtype dtype, const void *a, int64_t i, int n) {
  (void)k;
  const vf2 u = v2_load(a, i, dtype, n);
  return (vf2){gelu_tanh_exp_16(u.a), gelu_tanh_exp_16(u.b)};
}
TIGON_INLINE vf2 exp_erf(const tigon_map_numbers *k, tigon_dtype dtype, const void *a, int64_t i, int n) {
  (void)k;
  const vf2 u = v2_load(a, i, dtype, n);
  return (vf2){gelu_erf_exp_16(u.a), gelu_erf_exp_16(u.b)};
}

/* c of a and b. */
TIGON_INLINE map_out fwd(bool erf, map_in in) { return (map_out){.a = vf_mul(gelu(erf, &in, in.a), in.b)}; }
TIGON_INLINE map_out fwd_tanh(map_in in) { return fwd(false, in); }
TIGON_INLINE map_out fwd_erf(map_in in) { return fwd(true, in); }

/* da and db of dc, a and b. */
TIGON_INLINE map_out bwd(bool erf, map_in in) {
  vf value;
  const vf slope = gelu_slope(erf, &in, in.b, &value);
  return (map_out){vf_mul(vf_mul(in.a, in.c), slope), vf_mul(in.a, value)};
}
TIGON_INLINE map_out bwd_tanh(map_in in) { return bwd(false, in); }
TIGON_INLINE map_out bwd_erf(map_in in) { return bwd(true, in); }

MAP_EITHER(geglu_fwd, p->numbers.approx == TIGON_GELU_ERF, MAP_OF(2, 1, fwd_erf, exp_erf, 0),
           MAP_OF(2, 1, fwd_tanh, exp_tanh, 0))
MAP_EITHER(geglu_bwd, p->numbers.approx == TIGON_GELU_ERF, MAP_OF(3, 2, bwd_erf, exp_erf, 1),
           MAP_OF(3, 2, bwd_tanh, exp_tanh, 1))
