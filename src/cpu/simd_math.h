/* exp and friends, in register. ULP bounds are measured by tests/cpu/math.c. */
#ifndef TIGON_CPU_SIMD_MATH_H
#define TIGON_CPU_SIMD_MATH_H

#include "cpu/simd.h"

/* e^x, within 1.5 ULP of the true value for -87.33 <= x <= 88.72; 0 below, Inf above, NaN for NaN. x = n ln 2 + r with
 * |r| <= ln 2 / 2 in two parts (Cody & Waite), e^r by a polynomial of degree 6. */
TIGON_INLINE vf vf_exp(vf x) {
  const vf low = vf_set(-87.33654f), high = vf_set(88.72283f);
  vf n = vf_round(vf_mul(vf_min(vf_max(x, low), high), vf_set(1.44269504f)));
  n = vf_min(n, vf_set(127.0f)); /* e^88.72 is 2^127 * 1.99 */
  const vf clamped = vf_min(vf_max(x, low), high);
  vf r = vf_fnma(n, vf_set(0.693359375f), clamped);
  r = vf_fnma(n, vf_set(-2.12194440e-4f), r);
  vf p = vf_set(1.3978548e-3f);
  p = vf_fma(p, r, vf_set(8.3742570e-3f));
  p = vf_fma(p, r, vf_set(4.1664829e-2f));
  p = vf_fma(p, r, vf_set(1.6666481e-1f));
  p = vf_fma(p, r, vf_set(5.0000001e-1f));
  p = vf_fma(vf_mul(p, r), r, r);
  vf y = vf_mul(vf_add(p, vf_set(1.0f)), vf_pow2(n));
  y = vf_select(vf_lt(x, low), vf_zero(), y);
  y = vf_select(vf_lt(high, x), vf_set(INFINITY), y);
  return vf_select(vf_nan(x), x, y);
}

/* 1 / (1 + e^-x), monotone to 0 and 1 at the ends. */
TIGON_INLINE vf vf_sigmoid(vf x) {
  return vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), vf_exp(vf_sub(vf_zero(), x))));
}

/* e^x for x <= 88.37, where it need not be quick to notice more: 0 for x < low, NaN for NaN, nothing useful above. */
TIGON_INLINE vf vf_exp_flush(vf x, vf low) {
  const vf clamped = vf_max(low, x);
  const vf n = vf_round(vf_mul(clamped, vf_set(1.44269504f)));
  vf r = vf_fnma(n, vf_set(0.693359375f), clamped);
  r = vf_fnma(n, vf_set(-2.12194440e-4f), r);
  vf p = vf_set(1.3978548e-3f);
  p = vf_fma(p, r, vf_set(8.3742570e-3f));
  p = vf_fma(p, r, vf_set(4.1664829e-2f));
  p = vf_fma(p, r, vf_set(1.6666481e-1f));
  p = vf_fma(p, r, vf_set(5.0000001e-1f));
  p = vf_fma(vf_mul(p, r), r, r);
  return vf_select(vf_lt(x, low), vf_zero(), vf_mul(vf_add(p, vf_set(1.0f)), vf_pow2(n)));
}

/* tanh x and its slope 1 - tanh^2 x. For |x| < 0.625 an odd polynomial (Cephes), else from e^(-2 |x|). */
TIGON_INLINE vf vf_tanh_slope(vf x, vf *slope) {
  const vf e = vf_exp_flush(vf_mul(vf_abs(x), vf_set(-2.0f)), vf_set(-87.33654f));
  const vf q = vf_div(vf_set(1.0f), vf_add(vf_set(1.0f), e));
  *slope = vf_mul(vf_mul(vf_set(4.0f), e), vf_mul(q, q));
  const vf far = vf_mul(vf_sub(vf_set(1.0f), e), q);
  const vf w = vf_mul(x, x);
  vf p = vf_set(-5.70498872745e-3f);
  p = vf_fma(p, w, vf_set(2.06390887954e-2f));
  p = vf_fma(p, w, vf_set(-5.37397155531e-2f));
  p = vf_fma(p, w, vf_set(1.33314422036e-1f));
  p = vf_fma(p, w, vf_set(-3.33332819422e-1f));
  const vf near = vf_fma(vf_mul(x, w), p, x);
  const vf signed_far = vf_select(vf_lt(x, vf_zero()), vf_sub(vf_zero(), far), far);
  return vf_select(vf_lt(vf_abs(x), vf_set(0.625f)), near, signed_far);
}
TIGON_INLINE vf vf_tanh(vf x) {
  vf slope;
  return vf_tanh_slope(x, &slope);
}

#endif
