#include "cpu/columns.h"

/* c[0] + c[1] x + ... */
TIGON_INLINE vf polynomial(const float *c, int terms, vf x) {
  vf p = vf_set(c[terms - 1]);
  for (int i = terms - 2; i >= 0; --i) p = vf_fma(p, x, vf_set(c[i]));
  return p;
}

/* tanh(u) = c P(c^2) / Q(c^2), c = u cut off where tanh is 1 but for 2^-23.2, 16-bit dtypes 2^-15.2 (iterated least squares):
 * within 8 * 2^-24 of it, 16-bit dtypes 2^-15. */
TIGON_INLINE vf tanh_of(tigon_dtype dtype, vf u) {
  static const float p[] = {0.99999999f, 0.134195795f, 0.00354161715f, 2.13797692e-05f, 1.44578463e-08f};
  static const float q[] = {1, 0.467529033f, 0.0260514386f, 0.000336142679f, 8.21995845e-07f};
  static const float p_16[] = {0.999999831f, 0.124856265f, 0.00244710975f, 4.81085906e-06f};
  static const float q_16[] = {1, 0.458188094f, 0.0218453869f, 0.000161576262f};
  const bool f32 = dtype == TIGON_F32;
  const float most = f32 ? 8.4f : 5.6f;
  const vf c = vf_max(vf_set(-most), vf_min(vf_set(most), u)), s = vf_mul(c, c);
  const vf over = vf_mul(c, f32 ? polynomial(p, 5, s) : polynomial(p_16, 4, s));
  return vf_mul(over, vf_reciprocal(f32 ? polynomial(q, 5, s) : polynomial(q_16, 4, s)));
}

/* tanh(u) within 8 * 2^-24 of it, 16-bit dtypes 2^-15, and *slope = 1 - tanh(u)^2 within (12 + 2 |u|) 2^-24, 16-bit dtypes 2^-15,
 * of it, 0 below 2^-123. Of e = 2^y, y = -2 |u| / ln 2, and of e - 1 from its own polynomial, so that nothing cancels. */
TIGON_INLINE vf tanh_and_slope(tigon_dtype dtype, vf u, vf *slope) {
  static const float less[] = {0.693147188f,  0.240226498f,   0.0555035743f,
                               0.0096182375f, 0.00133907355f, 0.000154035116f}; /* (2^f - 1) / f, |f| <= 1/2, 2^-26.4 */
  static const float less_16[] = {0.693136858f, 0.240232522f, 0.0558372882f, 0.00961810945f}; /* 2^-16 */
  const vf far = vf_set(-126.0f), one = vf_set(1.0f), exponent = vf_mul(vf_abs(u), vf_set(-2.88539008f));
  const vf y = vf_max(far, exponent), t = vf_add(y, vf_set(VF_SHIFTER)), f = vf_sub(y, vf_sub(t, vf_set(VF_SHIFTER)));
  const vf fraction = vf_mul(f, dtype == TIGON_F32 ? polynomial(less, 6, f) : polynomial(less_16, 4, f));
  const vf power = vf_add_exponent(one, t), rest = vf_fma(fraction, power, vf_sub(power, one)); /* e - 1 */
  const vf share = vf_reciprocal(vf_add(vf_set(2.0f), rest)), size = vf_mul(rest, share);
  const vf e = vf_select(vf_lt(exponent, far), vf_zero(), vf_fma(fraction, power, power));
  *slope = vf_mul(vf_mul(vf_set(4.0f), e), vf_mul(share, share));
  return vf_select(vf_lt(u, vf_zero()), size, vf_sub(vf_zero(), size));
}

TIGON_INLINE vf forward(columns_in in) {
  return vf_fma(in.vector[0], tanh_of(in.dtype, vf_mul(in.number, in.b)), in.vector[1]);
}

/* dx of dy and x, and the terms of dgamma, dbeta and dalpha. */
TIGON_INLINE vf backward(columns_in in, columns_sums *sums) {
  vf slope;
  const vf t = tanh_and_slope(in.dtype, vf_mul(in.number, in.b), &slope);
  const vf q = vf_mul(vf_mul(in.a, in.vector[0]), slope);
  sums->vector[0] = vf_fma(in.a, t, sums->vector[0]);
  sums->vector[1] = vf_add(in.a, sums->vector[1]);
  sums->number = vf_fma(q, in.b, sums->number);
  return vf_mul(in.number, q);
}

COLUMNS(dyt, forward, backward)
