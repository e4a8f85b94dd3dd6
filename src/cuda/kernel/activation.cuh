/* silu and gelu and their slopes. f32 has the exact ones, after src/cpu/simd_math.h, whose bounds hold; 16-bit dtypes have cheaper ones,
 * whose error is far below their rounding. NaN where the formulas have it. */
#ifndef TIGON_CUDA_KERNEL_ACTIVATION_CUH
#define TIGON_CUDA_KERNEL_ACTIVATION_CUH

#include "cuda/kernel/element.cuh"

enum activation { ACT_SILU, ACT_GELU_TANH, ACT_GELU_ERF };

/* ---- parts ---- */

/* 2^y within 2 ULP, denormals too. */
__device__ static inline float exp2_fast(float y) {
  float e;
  asm("ex2.approx.f32 %0, %1;" : "=f"(e) : "f"(y));
  return e;
}
/* The same, but 0 where it is less than 2^-126. */
__device__ static inline float exp2_flushed(float y) {
  float e;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(y));
  return e;
}
/* 1 / v within 1 ULP, for 2^-126 <= v <= 2^126. */
__device__ static inline float reciprocal_fast(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

#define EXP_SHIFTER 12582912.0f /* 1.5 * 2^23: a small number plus this is rounded to an integer */

/* e^r - 1 = r + r^2 q(r), q of degree 4, for |r| <= ln 2 / 2, within 2^-28 before rounding (Remez). */
__device__ static inline float exp_less_1(float r) {
  const float s = r * r;
  const float middle = fmaf(1.666652063e-1f, r, 4.999999345e-1f);
  const float high = fmaf(1.381459865e-3f, s, fmaf(8.36871688e-3f, r, 4.166838805e-2f));
  return fmaf(fmaf(high, s, middle), s, r);
}
/* r of x = n ln 2 + r (Cody & Waite: n times the larger part of ln 2 is exact), and n; for |x| < 160. */
__device__ static inline float exp_reduce(float x, int &n) {
  const float t = fmaf(x, 1.44269504f, EXP_SHIFTER), whole = t - EXP_SHIFTER;
  n = __float_as_int(t) - __float_as_int(EXP_SHIFTER);
  return fmaf(whole, 2.12194440e-4f, fmaf(whole, -0.693359375f, x));
}
/* v * 2^n, where it is normal. */
__device__ static inline float add_exponent(float v, int n) { return __int_as_float(__float_as_int(v) + (n << 23)); }
/* What a * b was rounded by. */
__device__ static inline float product_error(float a, float b, float product) { return fmaf(a, b, -product); }

/* ---- silu ---- */

/* silu(u) = u / (1 + e^-u) as numerator / denominator, both times 2^-64 where u < -44: so e^-u stays in range until silu is 0, and the
 * quotient alone rounds to a denormal. */
struct silu_parts {
  float scale, e, u; /* 1 or 2^-64; e^-u * scale, Inf for u < -110; u * scale */
};
__device__ static inline silu_parts silu_split(float u) {
  int n;
  const float p = exp_less_1(exp_reduce(-fminf(87.0f, fmaxf(-110.0f, u)), n)) + 1.0f;
  const bool far = n > 63;
  const float scale = far ? 0x1p-64f : 1.0f, e = add_exponent(p, far ? n - 64 : n);
  return silu_parts{scale, u < -110.0f ? __int_as_float(0x7f800000) : e, u * scale};
}

/* For 16-bit results: sigma(y) and 1 - sigma(y) of e = e^y <= 2^30; the latter is 0 where e was cut off. */
struct sigma_parts {
  float sigma, rest;
};
__device__ static inline sigma_parts sigma_of_log2(float log2_e) {
  const float e = exp2_fast(fminf(30.0f, log2_e)), rest = reciprocal_fast(e + 1.0f);
  return sigma_parts{e * rest, e < 0x1p30f ? rest : 0.0f};
}

/* ---- gelu(a) = a Phi(a): Phi the Gaussian distribution, or sigma(y) with y = sqrt(8 / pi) (a + 0.044715 a^3) ---- */

/* Phi at -|a| and gelu's slope there, both divided by scale, which is 2^-64 where they are small and a < 0, else 1: so no factor is
 * denormal before the product. Phi(-x) = 1 - Phi(x), and the slope alike, so nothing cancels on either side. */
struct gelu_tail {
  float phi, slope, scale;
};
/* |a|, no further than where phi is 0 (a < 0) or 1 (a > 0). */
__device__ static inline float gelu_near(float a, float low, float high) { return fabsf(fminf(high, fmaxf(low, a))); }
/* e^(high + low) = (1 + more) power * scale for -110 < high <= 0: scale as above; power is 0 where `near` is not x. */
struct gelu_exp {
  float more, power, scale;
};
__device__ static inline gelu_exp gelu_exp_of(float high, float low, float near, float x) {
  int n;
  const float more = exp_less_1(exp_reduce(high, n) + low);
  const bool far = n < -63;
  return gelu_exp{more, near < x ? 0.0f : add_exponent(1.0f, far ? n + 64 : n), far ? 0x1p-64f : 1.0f};
}

/* Phi(-x) = e^(-x^2 / 2) r(x), 1 / r = sqrt(2 pi) x + q(x) / p(x) within 2^-30 (iterated least squares on 0 .. 14.6); so the rounding
 * of p, which is in both parts of r = p / (sqrt(2 pi) x p + q), cancels where x is large. */
__device__ static inline gelu_tail gelu_erf_tail(float a) {
  const float x = fabsf(a), near = gelu_near(a, -14.6f, 9.0f), s = near * near;
  const gelu_exp e = gelu_exp_of(-0.5f * s, -0.5f * product_error(near, near, s), near, x);
  float p = 0.00186487334f;
  p = fmaf(p, near, 0.0223417431f);
  p = fmaf(p, near, 0.127949506f);
  p = fmaf(p, near, 0.424159646f);
  p = fmaf(p, near, 0.813921094f);
  p = fmaf(p, near, 0.75f);
  float q = 0.00467500696f;
  q = fmaf(q, near, 0.055979155f);
  q = fmaf(q, near, 0.311882406f);
  q = fmaf(q, near, 0.944697738f);
  const float r = p / fmaf(near, fmaf(p, 2.50662827f, q), 1.5f);
  const float slope = fmaf(-x, 0.398942292f, r);
  return gelu_tail{fmaf(r, e.more, r) * e.power, fmaf(slope, e.more, slope) * e.power, e.scale};
}

/* y = c x v, v = x^2 + 1 / 0.044715, to twice the precision, because e^-y multiplies its error by up to 108. The larger part of the
 * constant has 8 bits, so that v without it is exact. */
__device__ static inline gelu_tail gelu_tanh_tail(float a) {
  const float x = fabsf(a), near = gelu_near(a, -10.85f, 7.0f), third = 22.375f;
  const float v = fmaf(near, near, third);
  const float v_low = product_error(near, near, v - third) + -1.11399978e-2f;
  const float c = -7.13548139e-2f, b = near * c, y = b * v;
  const float b_low = fmaf(near, -2.39883247e-9f, product_error(near, c, b));
  const float y_low = fmaf(b_low, v, fmaf(b, v_low, product_error(b, v, y)));
  const gelu_exp part = gelu_exp_of(y, y_low, near, x);
  const float e = fmaf(part.more, part.power, part.power);
  const float rest = 1.0f / fmaf(e, part.scale, 1.0f), phi = e * rest;
  const float steep = fmaf(near * near, 2.14064449e-1f, 1.59576917f); /* y' */
  return gelu_tail{phi, fmaf(-(phi * rest * steep), x, phi), part.scale};
}

/* For 16-bit results: a^2, cut off where sigma(y) has been 0 or 1 for long; y / ln 2. */
__device__ static inline float gelu_tanh_square(float a) { return fminf(128.0f, a * a); }
__device__ static inline float gelu_tanh_log2(float a) {
  return a * fmaf(gelu_tanh_square(a), 0.102943242f, 2.30220819f);
}
/* For 16-bit results: Phi(-|a|) and gelu's slope there; r within 2^-21, and 0 beyond 15. */
__device__ static inline gelu_tail gelu_erf_tail_16(float a) {
  const float x = fabsf(a), near = fminf(15.0f, x), e = exp2_fast(near * near * -0.721347511f);
  float p = 1.71184335e-2f;
  p = fmaf(p, near, 1.1990644e-1f);
  p = fmaf(p, near, 3.62700284e-1f);
  p = fmaf(p, near, 0.5f);
  float q = 4.29141447e-2f;
  q = fmaf(q, near, 3.00368756e-1f);
  q = fmaf(q, near, 9.55340803e-1f);
  q = fmaf(q, near, 1.52327108f);
  q = fmaf(q, near, 1.0f);
  const float r = p * reciprocal_fast(q);
  return gelu_tail{r * e, fmaf(-x, 0.398942292f, r) * e, 1.0f};
}

/* ---- all ---- */

/* The activation's slope at u, for results of dtype T, and its value. */
template <class T, activation ACT> __device__ inline float activate_slope(float u, float &value) {
  if constexpr (ACT == ACT_SILU && sizeof(T) == 4) {
    const silu_parts s = silu_split(u);
    const float sigma = 1.0f / (s.scale + s.e); /* / scale */
    const float rest = u > 87.0f ? 0.0f : u < -110.0f ? 1.0f : s.e * sigma;
    value = s.u * sigma;
    return fmaf(u, rest, 1.0f) * s.scale * sigma;
  } else if constexpr (ACT == ACT_SILU) {
    const sigma_parts s = sigma_of_log2(u * 1.44269504f);
    value = u * s.sigma;
    return s.sigma * fmaf(u, s.rest, 1.0f);
  } else if constexpr (ACT == ACT_GELU_TANH && sizeof(T) < 4) {
    const sigma_parts s = sigma_of_log2(gelu_tanh_log2(u));
    const float steep = fmaf(gelu_tanh_square(u), 2.14064449e-1f, 1.59576917f);
    value = u * s.sigma;
    return fmaf(s.sigma * s.rest * steep, u, s.sigma);
  } else {
    const gelu_tail g = ACT == ACT_GELU_TANH ? gelu_tanh_tail(u)
                        : sizeof(T) == 4     ? gelu_erf_tail(u)
                                             : gelu_erf_tail_16(u);
    const bool negative = u < 0;
    value = u * (negative ? g.phi : 1.0f - g.phi) * g.scale;
    return (negative ? g.slope : 1.0f - g.slope) * g.scale;
  }
}

template <class T, activation ACT> __device__ inline float activate(float u) {
  if constexpr (ACT == ACT_SILU && sizeof(T) == 4) {
    const silu_parts s = silu_split(u);
    return s.u / (s.scale + s.e);
  } else {
    float value;
    activate_slope<T, ACT>(u, value);
    return value;
  }
}

/* The activation at u, times b. gelu in f32 is short of the error that a second rounding would add, so there is but one. */
template <class T, activation ACT> __device__ inline float activate_times(float u, float b) {
  if constexpr (ACT == ACT_SILU || sizeof(T) < 4) {
    return activate<T, ACT>(u) * b;
  } else {
    const gelu_tail g = ACT == ACT_GELU_TANH ? gelu_tanh_tail(u) : gelu_erf_tail(u);
    const float phi = u < 0 ? g.phi : 1.0f - g.phi, value = u * phi;
    const float product = fmaf(value, b, product_error(u, phi, value) * b);
    return (fabsf(product) < __int_as_float(0x7f800000) ? product : value * b) * g.scale;
  }
}

#endif
