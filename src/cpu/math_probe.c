#include "cpu/math_probe.h"

#include "cpu/simd_math.h"

TIGON_INLINE vf call(tigon_math_function f, vf x, vf *second) {
  switch (f) {
    case TIGON_MATH_EXP: return vf_exp(x);
    case TIGON_MATH_EXP_ALL: return vf_exp_all(x);
    case TIGON_MATH_EXPM1: return vf_expm1(x);
    case TIGON_MATH_EXP2: return vf_exp2(x);
    case TIGON_MATH_EXP_SPLIT: return vf_mul(vf_exp_split(x).p, vf_exp_split(x).scale);
    case TIGON_MATH_LOG: return vf_log(x);
    case TIGON_MATH_TANH: return vf_tanh_slope(x, second);
    case TIGON_MATH_SILU: return vf_silu(x);
    case TIGON_MATH_SILU_SLOPE: return vf_silu_slope(x, second);
    case TIGON_MATH_SILU_16: return silu_16(x, silu_exp_16(x));
    case TIGON_MATH_SILU_BF16: return silu_16(x, silu_exp_bf16(vf_max(vf_set(-110), vf_min(vf_set(20.75f), x))));
    case TIGON_MATH_SILU_SLOPE_16: return silu_slope_16(x, silu_exp_16(x), second);
    case TIGON_MATH_GELU_TANH: return vf_gelu_slope(false, x, second);
    case TIGON_MATH_GELU_ERF: return vf_gelu_slope(true, x, second);
    case TIGON_MATH_GELU_TANH_16: return gelu_tanh_slope_16(x, gelu_tanh_exp_16(x), second);
    default: return gelu_erf_slope_16(x, gelu_erf_exp_16(x), second);
  }
}

void TIGON_CPU(math_probe)(tigon_math_function f, const float *x, float *y, float *second, int64_t n) {
  for (int64_t i = 0; i < n; i += LANES) {
    const int lanes = n - i < LANES ? (int)(n - i) : LANES;
    vf other = vf_load_n(second + i, lanes);
    vf_store_n(y + i, call(f, vf_load_n(x + i, lanes), &other), lanes);
    vf_store_n(second + i, other, lanes);
  }
}
