/* exp and friends, in register. ULP bounds are measured by tests/cpu/math.c. */
#ifndef TIGON_CPU_SIMD_MATH_H
#define TIGON_CPU_SIMD_MATH_H

#include "cpu/simd.h"

/* e^r - 1 = r + r^2 q(r), q of degree 4, for |r| <= ln 2 / 2, within 2^-28 before rounding (Remez). */
TIGON_INLINE vf exp_less_1(vf r) {
  const vf s = vf_mul(r, r);
  const vf middle = vf_fma(vf_set(1.666652063e-1f), r, vf_set(4.999999345e-1f));
  const vf high = vf_fma(vf_set(1.381459865e-3f), s, vf_fma(vf_set(8.36871688e-3f), r, vf_set(4.166838805e-2f)));
  return vf_fma(vf_fma(high, s, middle), s, r);
}
/* r of x = n ln 2 + r, |r| <= ln 2 / 2 (Cody & Waite: ln 2 in two parts, so that n times the first is exact), and
 * *t = n + VF_SHIFTER; for |x| < 110. */
TIGON_INLINE vf exp_reduce(vf x, vf *t) {
  *t = vf_fma(x, vf_set(1.44269504f), vf_set(VF_SHIFTER));
  const vf n = vf_sub(*t, vf_set(VF_SHIFTER));
  return vf_fnma(n, vf_set(-2.12194440e-4f), vf_fnma(n, vf_set(0.693359375f), x));
}
TIGON_INLINE vf exp_reduced(vf x, vf *t) { return vf_add(exp_less_1(exp_reduce(x, t)), vf_set(1.0f)); }

/* e^x, within 1.1 ULP of the true value for -87.33654 <= x <= 88.72283; 0 below, Inf above, NaN for NaN. */
TIGON_INLINE vf vf_exp(vf x) {
  const vf low = vf_set(-87.33654f), high = vf_set(88.72283f);
  vf t;
  const vf p = exp_reduced(vf_min(high, vf_max(low, x)), &t);
  vf y = vf_add_exponent(p, t);
  y = vf_select(vf_lt(x, low), vf_zero(), y);
  y = vf_select(vf_lt(high, x), vf_set(INFINITY), y);
  return vf_select(vf_nan(x), x, y);
}

/* The same, within 1.5 ULP, and denormals too. */
TIGON_INLINE vf vf_exp_all(vf x) {
  const vf high = vf_set(88.72283f);
  vf t;
  const vf p = exp_reduced(vf_min(high, vf_max(vf_set(-104.0f), x)), &t);
  const vf denormal = vf_scale_floor(p, vf_sub(t, vf_set(VF_SHIFTER)));
  vf y = vf_select(vf_lt(x, vf_set(-87.0f)), denormal, vf_add_exponent(p, t));
  y = vf_select(vf_lt(high, x), vf_set(INFINITY), y);
  return vf_select(vf_nan(x), x, y);
}

/* e^x - 1, within 1.5 ULP of the true value for x <= 88.72283; Inf above, NaN for NaN. With e^r - 1 = q and s = 2^n it is s q + (s - 1),
 * here by half of s, which is in range where s is not. */
TIGON_INLINE vf vf_expm1(vf x) {
  const vf high = vf_set(88.72283f);
  vf t;
  const vf q = exp_less_1(exp_reduce(vf_min(high, vf_max(vf_set(-40.0f), x)), &t));
  const vf half = vf_pow2(vf_sub(t, vf_set(VF_SHIFTER + 1)));
  const vf part = vf_fma(half, q, vf_sub(half, vf_set(0.5f)));
  vf y = vf_select(vf_eq(half, vf_set(0.5f)), q, vf_add(part, part));
  y = vf_select(vf_lt(high, x), vf_set(INFINITY), y);
  return vf_select(vf_nan(x), x, y);
}

/* log x, within 1 ULP, denormals too; -Inf for 0, NaN for what is negative. log(1 + r) = 2 s (1 + s^2 / 3 + s^4 / 5 + ...)
 * with s = r / (2 + r), |s| <= 1/5, which five terms give within 2^-26. */
TIGON_INLINE vf vf_log(vf x) {
  const vm small = vf_lt(x, vf_set(0x1p-126f));
  vf m;
  vf n = vf_take_exponent(vf_select(small, vf_mul(x, vf_set(0x1p24f)), x), &m);
  n = vf_select(small, vf_sub(n, vf_set(24.0f)), n);
  const vf r = vf_sub(m, vf_set(1.0f)), s = vf_div(r, vf_add(r, vf_set(2.0f))), w = vf_mul(s, s);
  vf p = vf_set(1.11111111e-1f);
  p = vf_fma(p, w, vf_set(1.42857143e-1f));
  p = vf_fma(p, w, vf_set(2.0e-1f));
  p = vf_fma(p, w, vf_set(3.33333333e-1f));
  /* 2 s = r - r s: r is exact, and what is taken off it is a fifth of it at most. */
  const vf off = vf_mul(s, vf_fnma(vf_mul(w, p), vf_set(2.0f), r));
  vf y = vf_fma(n, vf_set(0.693359375f), vf_sub(r, vf_fma(n, vf_set(2.12194440e-4f), off)));
  y = vf_select(vf_eq(x, vf_set(INFINITY)), x, y);
  y = vf_select(vf_lt(vf_zero(), x), y, vf_set(NAN));
  return vf_select(vf_eq(x, vf_zero()), vf_set(-INFINITY), y);
}

/* silu(u) = u / (1 + e^-u) as numerator / denominator, both times 2^-64 where u < -44: so e^-u stays in range until
 * silu is 0, and the quotient alone rounds to a denormal. A NaN passes by the numerator. */
typedef struct silu_parts {
  vf scale, e, u; /* 1 or 2^-64; e^-u * scale, Inf for u < -110; u * scale */
} silu_parts;
TIGON_INLINE silu_parts silu_split(vf u) {
  vf t;
  const vf x = vf_sub(vf_zero(), vf_min(vf_set(87.0f), vf_max(vf_set(-110.0f), u)));
  const vf p = exp_reduced(x, &t);
  const vm far = vf_lt(vf_set(VF_SHIFTER + 63.0f), t);
  const vf scale = vf_select(far, vf_set(0x1p-64f), vf_set(1.0f));
  const vf e = vf_add_exponent(p, vf_select(far, vf_sub(t, vf_set(64.0f)), t));
  return (silu_parts){scale, vf_select(vf_lt(u, vf_set(-110.0f)), vf_set(INFINITY), e), vf_mul(u, scale)};
}

/* silu(u), within 2.5 ULP, denormals too; NaN for -Inf, as the formula has it. */
TIGON_INLINE vf vf_silu(vf u) {
  const silu_parts s = silu_split(u);
  return vf_div(s.u, vf_add(s.scale, s.e));
}

/* silu'(u) = sigma(u) (1 + u (1 - sigma(u))), within 4 * 2^-24 (sigma(u) (1 + |u| (1 - sigma(u)))) plus half a denormal,
 * and *silu, within 3 ULP; NaN for an infinity, as the formula has it. */
TIGON_INLINE vf vf_silu_slope(vf u, vf *silu) {
  const silu_parts s = silu_split(u);
  const vf sigma = vf_div(vf_set(1.0f), vf_add(s.scale, s.e));                      /* / scale */
  vf rest = vf_select(vf_lt(u, vf_set(-110.0f)), vf_set(1.0f), vf_mul(s.e, sigma)); /* 1 - sigma */
  rest = vf_select(vf_lt(vf_set(87.0f), u), vf_zero(), rest);
  *silu = vf_mul(s.u, sigma);
  return vf_mul(vf_mul(vf_fma(u, rest, vf_set(1.0f)), s.scale), sigma);
}

/* 2^y for y <= 127, within 2 ULP, denormals too. */
TIGON_INLINE vf vf_exp2(vf y) {
  const vf f = vf_fraction(y);
  vf p = vf_set(2.15659718e-4f);
  p = vf_fma(p, f, vf_set(1.24822895e-3f));
  p = vf_fma(p, f, vf_set(9.67377517e-3f));
  p = vf_fma(p, f, vf_set(5.54861636e-2f));
  p = vf_fma(p, f, vf_set(2.40229085e-1f));
  p = vf_fma(p, f, vf_set(6.93147063e-1f));
  p = vf_fma(p, f, vf_set(1.0f));
  return vf_scale_floor(p, y);
}

/* For results that are rounded to 16 bits: 2^y for y <= 30, within 2^-18.5 of it before rounding (Remez), denormals too. */
TIGON_INLINE vf exp2_16(vf y) {
  const vf f = vf_fraction(y);
  vf p = vf_set(1.353416778e-2f);
  p = vf_fma(p, f, vf_set(5.201146007e-2f));
  p = vf_fma(p, f, vf_set(2.414427549e-1f));
  p = vf_fma(p, f, vf_set(6.930038333e-1f));
  p = vf_fma(p, f, vf_set(1.000002623f));
  return vf_scale_floor(p, y);
}

/* e^x for -110 <= x <= 88, within 2^-15 of it, denormals too: 2^(k / 32) (1 + r), |r| <= ln 2 / 64. The table has
 * 2^(k / 32) times what centers 1 + r on e^r. */
TIGON_INLINE vf exp_table32(vf x) {
  static const float power[32] __attribute__((aligned(64))) = {
      1.00002956f, 1.02192736f, 1.04430461f, 1.06717193f, 1.09053993f, 1.1144197f,  1.13882232f, 1.16375923f,
      1.18924224f, 1.21528327f, 1.24189448f, 1.26908839f, 1.29687786f, 1.32527578f, 1.35429549f, 1.38395071f,
      1.41425538f, 1.44522345f, 1.47686982f, 1.50920904f, 1.54225636f, 1.57602739f, 1.61053789f, 1.64580405f,
      1.68184257f, 1.71867001f, 1.75630403f, 1.79476213f, 1.83406222f, 1.87422299f, 1.91526318f, 1.95720196f};
  const vf shifter = vf_set(VF_SHIFTER / 32), t = vf_fma(x, vf_set(1.44269504f), shifter), n = vf_sub(t, shifter);
  const vf r = vf_fnma(n, vf_set(0.693147181f), x), p = vf_table32(power, t);
  return vf_scale_floor(vf_fma(r, p, p), n);
}

/* ---- silu and gelu for 16-bit results, each in two halves, the exponential and the rest: a loop over one half has twice
 * as many elements in the CPU's window. ---- */

/* sigma(y) and 1 - sigma(y) from e = e^y <= 2^30; the latter is 0 where e was cut off. */
typedef struct sigma_parts {
  vf sigma, rest;
} sigma_parts;
TIGON_INLINE vf sigma_of(vf e) { return vf_quotient(e, vf_add(e, vf_set(1.0f))); }
TIGON_INLINE sigma_parts sigma_split(vf e) {
  const vf rest = vf_reciprocal(vf_add(e, vf_set(1.0f)));
  return (sigma_parts){vf_mul(e, rest), vf_select(vf_lt(e, vf_set(0x1p30f)), rest, vf_zero())};
}

/* silu(u) = u e^u / (1 + e^u) and its slope, within 110 * 2^-24 of it (of the slope's terms in absolute value) plus a
 * denormal: e^u loses |u| 2^-24. NaN where the exact ones have it. */
TIGON_INLINE vf silu_exp_16(vf u) { return exp2_16(vf_min(vf_set(30.0f), vf_mul(u, vf_set(1.44269504f)))); }
TIGON_INLINE vf silu_16(vf u, vf e) { return vf_mul(u, sigma_of(e)); }
/* For silu alone and rounded to bf16, u cut off at -110 and 20.75: within 520 * 2^-24. */
TIGON_INLINE vf silu_exp_bf16(vf u) { return V_TABLES ? exp_table32(u) : silu_exp_16(u); }
TIGON_INLINE vf silu_slope_16(vf u, vf e, vf *silu) {
  const sigma_parts s = sigma_split(e);
  *silu = vf_mul(u, s.sigma);
  return vf_mul(s.sigma, vf_fma(u, s.rest, vf_set(1.0f)));
}

/* e^x = p * scale, within 2.5 ULP, for -87.33654 <= x <= 88.37; what is smaller counts as -87.33654, a NaN is in p. Kept
 * apart because a sum takes the product for nothing (fma). e^r by a polynomial of degree 5, within 2^-23.1 (Remez). */
typedef struct exp_parts {
  vf p, scale;
} exp_parts;
TIGON_INLINE exp_parts vf_exp_split(vf x) {
  x = vf_max(vf_set(-87.33654f), x);
  const vf t = vf_fma(x, vf_set(1.44269504f), vf_set(VF_SHIFTER));
  const vf n = vf_sub(t, vf_set(VF_SHIFTER));
  const vf r = vf_fnma(n, vf_set(-2.12194440e-4f), vf_fnma(n, vf_set(0.693359375f), x));
  vf p = vf_set(8.31250101e-3f);
  p = vf_fma(p, r, vf_set(4.18903306e-2f));
  p = vf_fma(p, r, vf_set(1.66671157e-1f));
  p = vf_fma(p, r, vf_set(4.99992311e-1f));
  p = vf_fma(p, r, vf_set(1.0f));
  p = vf_fma(p, r, vf_set(1.0f));
  return (exp_parts){p, vf_add_exponent(vf_set(1.0f), t)};
}

/* tanh x within 2.5 ULP and its slope 1 - tanh^2 x within 5.5. For |x| < 0.625 an odd polynomial (Cephes), else from e^(-2 |x|). */
TIGON_INLINE vf vf_tanh_slope(vf x, vf *slope) {
  const vf y = vf_mul(vf_abs(x), vf_set(-2.0f));
  const exp_parts s = vf_exp_split(y);
  const vf e = vf_mul(s.p, s.scale);
  const vf q = vf_reciprocal(vf_add(vf_set(1.0f), e));
  *slope = vf_select(vf_lt(y, vf_set(-87.0f)), vf_zero(), vf_mul(vf_mul(vf_set(4.0f), e), vf_mul(q, q)));
  const vf far = vf_mul(vf_sub(vf_set(1.0f), e), q);
  const vf w = vf_mul(x, x);
  vf p = vf_set(-5.70498872745e-3f);
  p = vf_fma(p, w, vf_set(2.06390887954e-2f));
  p = vf_fma(p, w, vf_set(-5.37397155531e-2f));
  p = vf_fma(p, w, vf_set(1.33314422036e-1f));
  p = vf_fma(p, w, vf_set(-3.33332819422e-1f));
  const vf near = vf_fma(vf_mul(w, p), x, x);
  const vf signed_far = vf_select(vf_lt(x, vf_zero()), vf_sub(vf_zero(), far), far);
  return vf_select(vf_lt(vf_abs(x), vf_set(0.625f)), near, signed_far);
}
TIGON_INLINE vf vf_tanh(vf x) {
  vf slope;
  return vf_tanh_slope(x, &slope);
}

/* ---- gelu(a) = a Phi(a): Phi the Gaussian distribution, or sigma(y) with y = sqrt(8 / pi) (a + 0.044715 a^3) ---- */

/* Phi at -|a| and gelu's slope there, both divided by scale. scale is 2^-64 where they are small and a < 0, else 1. So no factor
 * is denormal before the product. Phi(-x) = 1 - Phi(x), and the slope alike, so nothing cancels on either side. */
typedef struct gelu_tail {
  vf phi, slope, scale;
} gelu_tail;

/* |a|, no further than where phi is 0 (a < 0) or 1 (a > 0). */
TIGON_INLINE vf gelu_near(vf a, float low, float high) { return vf_abs(vf_min(vf_set(high), vf_max(vf_set(low), a))); }
/* e^(high + low) = (1 + more) power * scale for -110 < high <= 0: scale as above; power is 0 where `near` is not x. */
typedef struct gelu_exp {
  vf more, power, scale;
} gelu_exp;
TIGON_INLINE gelu_exp gelu_exp_of(vf high, vf low, vf near, vf x) {
  gelu_exp e;
  vf t;
  e.more = exp_less_1(vf_add(exp_reduce(high, &t), low));
  const vm far = vf_lt(t, vf_set(VF_SHIFTER - 63.0f));
  e.scale = vf_select(far, vf_set(0x1p-64f), vf_set(1.0f));
  const vf power = vf_add_exponent(vf_set(1.0f), vf_select(far, vf_add(t, vf_set(64.0f)), t));
  e.power = vf_select(vf_lt(near, x), vf_zero(), power);
  return e;
}

/* Phi(-x) = e^(-x^2 / 2) r(x), 1 / r = sqrt(2 pi) x + q(x) / p(x) within 2^-30 (iterated least squares on 0 .. 14.6);
 * so the rounding of p, which is in both parts of r = p / (sqrt(2 pi) x p + q), cancels where x is large. q is 1.5 + x
 * times the polynomial below. */
TIGON_INLINE gelu_tail gelu_erf_tail(vf a) {
  const vf x = vf_abs(a), near = gelu_near(a, -14.6f, 9.0f), s = vf_mul(near, near), half = vf_set(-0.5f);
  const gelu_exp e = gelu_exp_of(vf_mul(s, half), vf_mul(vf_product_error(near, near, s), half), near, x);
  vf p = vf_set(0.00186487334f);
  p = vf_fma(p, near, vf_set(0.0223417431f));
  p = vf_fma(p, near, vf_set(0.127949506f));
  p = vf_fma(p, near, vf_set(0.424159646f));
  p = vf_fma(p, near, vf_set(0.813921094f));
  p = vf_fma(p, near, vf_set(0.75f));
  vf q = vf_set(0.00467500696f);
  q = vf_fma(q, near, vf_set(0.055979155f));
  q = vf_fma(q, near, vf_set(0.311882406f));
  q = vf_fma(q, near, vf_set(0.944697738f));
  const vf r = vf_div(p, vf_fma(near, vf_fma(p, vf_set(2.50662827f), q), vf_set(1.5f)));
  const vf slope = vf_fnma(x, vf_set(0.398942292f), r);
  return (gelu_tail){vf_mul(vf_fma(r, e.more, r), e.power), vf_mul(vf_fma(slope, e.more, slope), e.power), e.scale};
}

/* y = c x v, v = x^2 + 1 / 0.044715, to twice the precision, because e^-y multiplies its error by up to 108. The larger
 * part of the constant has 8 bits, so that v without it is exact. */
TIGON_INLINE gelu_tail gelu_tanh_tail(vf a) {
  const vf x = vf_abs(a), near = gelu_near(a, -10.85f, 7.0f), third = vf_set(22.375f);
  const vf v = vf_fma(near, near, third);
  const vf v_low = vf_add(vf_product_error(near, near, vf_sub(v, third)), vf_set(-1.11399978e-2f));
  const vf c = vf_set(-7.13548139e-2f), b = vf_mul(near, c), y = vf_mul(b, v);
  const vf b_low = vf_fma(near, vf_set(-2.39883247e-9f), vf_product_error(near, c, b));
  const vf y_low = vf_fma(b_low, v, vf_fma(b, v_low, vf_product_error(b, v, y)));
  const gelu_exp part = gelu_exp_of(y, y_low, near, x);
  const vf e = vf_fma(part.more, part.power, part.power);
  const vf rest = vf_div(vf_set(1.0f), vf_fma(e, part.scale, vf_set(1.0f))), phi = vf_mul(e, rest);
  /* y' = 1.6 + 0.21 x^2 */
  const vf steep = vf_fma(vf_mul(near, near), vf_set(2.14064449e-1f), vf_set(1.59576917f));
  return (gelu_tail){phi, vf_fnma(vf_mul(vf_mul(phi, rest), steep), x, phi), part.scale};
}

/* gelu's slope at a, within 6 * 2^-24 of its two terms in absolute value, and *gelu, within 3.5 ULP, denormals too.
 * NaN for an infinity and for -Inf, as the formulas have it. */
TIGON_INLINE vf vf_gelu_slope(bool erf, vf a, vf *gelu) {
  const gelu_tail g = erf ? gelu_erf_tail(a) : gelu_tanh_tail(a);
  const vm negative = vf_lt(a, vf_zero());
  *gelu = vf_mul(vf_mul(a, vf_select(negative, g.phi, vf_sub(vf_set(1.0f), g.phi))), g.scale);
  return vf_mul(vf_select(negative, g.slope, vf_sub(vf_set(1.0f), g.slope)), g.scale);
}
TIGON_INLINE vf vf_gelu(bool erf, vf a) {
  vf gelu;
  vf_gelu_slope(erf, a, &gelu);
  return gelu;
}

/* For results that are rounded to 16 bits: within 170 * 2^-24 of gelu and of the slope's terms. r within 2^-21; phi is
 * 0 beyond 15, where it is less than any denormal. */
TIGON_INLINE vf gelu_erf_near(vf a) { return vf_min(vf_set(15.0f), vf_abs(a)); }
TIGON_INLINE vf gelu_erf_exp_16(vf a) {
  const vf near = gelu_erf_near(a);
  return exp2_16(vf_mul(vf_mul(near, near), vf_set(-0.721347511f)));
}
TIGON_INLINE vf gelu_erf_slope_16(vf a, vf e, vf *gelu) {
  const vf x = vf_abs(a), near = gelu_erf_near(a);
  vf p = vf_set(1.71184335e-2f);
  p = vf_fma(p, near, vf_set(1.1990644e-1f));
  p = vf_fma(p, near, vf_set(3.62700284e-1f));
  p = vf_fma(p, near, vf_set(0.5f));
  vf q = vf_set(4.29141447e-2f);
  q = vf_fma(q, near, vf_set(3.00368756e-1f));
  q = vf_fma(q, near, vf_set(9.55340803e-1f));
  q = vf_fma(q, near, vf_set(1.52327108f));
  q = vf_fma(q, near, vf_set(1.0f));
  const vf r = vf_mul(p, vf_reciprocal(q)), phi = vf_mul(r, e);
  const vf slope = vf_mul(vf_fnma(x, vf_set(0.398942292f), r), e);
  const vm negative = vf_lt(a, vf_zero());
  *gelu = vf_mul(a, vf_select(negative, phi, vf_sub(vf_set(1.0f), phi)));
  return vf_select(negative, slope, vf_sub(vf_set(1.0f), slope));
}
TIGON_INLINE vf gelu_erf_16(vf a, vf e) {
  vf gelu;
  gelu_erf_slope_16(a, e, &gelu);
  return gelu;
}
/* As silu, of y / a; a^2 is cut off where sigma(y) has been 0 or 1 for long. */
TIGON_INLINE vf gelu_tanh_square(vf a) { return vf_min(vf_set(128.0f), vf_mul(a, a)); }
TIGON_INLINE vf gelu_tanh_exp_16(vf a) {
  const vf per_a = vf_fma(gelu_tanh_square(a), vf_set(0.102943242f), vf_set(2.30220819f)); /* / ln 2 */
  return exp2_16(vf_min(vf_set(30.0f), vf_mul(a, per_a)));
}
TIGON_INLINE vf gelu_tanh_16(vf a, vf e) { return vf_mul(a, sigma_of(e)); }
TIGON_INLINE vf gelu_tanh_slope_16(vf a, vf e, vf *gelu) {
  const sigma_parts s = sigma_split(e);
  const vf steep = vf_fma(gelu_tanh_square(a), vf_set(2.14064449e-1f), vf_set(1.59576917f));
  *gelu = vf_mul(a, s.sigma);
  return vf_fma(vf_mul(vf_mul(s.sigma, s.rest), steep), a, s.sigma);
}

#endif
