#ifndef MATH_CL
#define MATH_CL
/* Functions of a vector: exp_of(), log_of(), expm1_of(), log1p_of(), logistic_of(), log_logistic_of(), tanh_of(), and silu and gelu as
 * src/cpu/simd_math.h has them. exp_one() and so on take a float (elementary.h). */
#include "common.cl"

#define V vf
#define I vi
#define FN(name) name##_of
#define AS_V as_vf
#define AS_I as_vi
#define TO_V to_vf
#define TO_I PASTE(convert_int, LANES)
#include "elementary.h"
#undef V
#undef I
#undef FN
#undef AS_V
#undef AS_I
#undef TO_V
#undef TO_I
#define V float
#define I int
#define FN(name) name##_one
#define AS_V as_float
#define AS_I as_int
#define TO_V convert_float
#define TO_I convert_int
#include "elementary.h"
#undef V
#undef I

/* a where yes, else b. */
static inlined vf either(vi yes, vf a, vf b) { return select(b, a, yes); }

/* silu(u) = u / (1 + e^-u), both times 2^-64 where u < -44. */
typedef struct silu_parts {
  vf scale, e, u;
} silu_parts;
static inlined silu_parts silu_split(vf u) {
  vi n;
  const vf p = 1 + exp_less_1_of(exp_reduce_of(-between_of(-110.0f, u, 87.0f), &n));
  const vi far = n > 63;
  const vf scale = either(far, (vf)(0x1p-64f), (vf)(1.0f));
  const vf e = add_exponent_of(p, n - (far & 64));
  return (silu_parts){scale, either(u < -110.0f, (vf)(INFINITY), e), u * scale};
}
static inlined vf silu(vf u) {
  const silu_parts s = silu_split(u);
  return s.u / (s.scale + s.e);
}
static inlined vf silu_slope(vf u, vf *value) {
  const silu_parts s = silu_split(u);
  const vf sigma = 1 / (s.scale + s.e);
  vf rest = either(u < -110.0f, (vf)(1.0f), s.e * sigma);
  rest = either(u > 87.0f, (vf)(0.0f), rest);
  *value = s.u * sigma;
  return fma(u, rest, (vf)(1.0f)) * s.scale * sigma;
}

/* gelu(a) = a Phi(a): Phi at -|a| and the slope there, divided by scale. */
typedef struct gelu_tail {
  vf phi, slope, scale;
} gelu_tail;
typedef struct gelu_exp {
  vf more, power, scale;
} gelu_exp;
/* e^(high + low) = (1 + more) power * scale. */
static inlined gelu_exp gelu_exp_of(vf high, vf low, vf near, vf x) {
  vi n;
  const vf more = exp_less_1_of(exp_reduce_of(high, &n) + low);
  const vi far = n < -63;
  const vf scale = either(far, (vf)(0x1p-64f), (vf)(1.0f)), power = add_exponent_of((vf)(1.0f), n + (far & 64));
  return (gelu_exp){more, either(near < x, (vf)(0.0f), power), scale};
}
static inlined vf product_error(vf a, vf b, vf p) { return fma(a, b, -p); }

static inlined gelu_tail gelu_erf_tail(vf a) {
  const vf x = fabs(a), near = fabs(between_of(-14.6f, a, 9.0f)), s = near * near;
  const gelu_exp e = gelu_exp_of(-0.5f * s, -0.5f * product_error(near, near, s), near, x);
  vf p = (vf)(0.00186487334f);
  p = fma(p, near, (vf)(0.0223417431f));
  p = fma(p, near, (vf)(0.127949506f));
  p = fma(p, near, (vf)(0.424159646f));
  p = fma(p, near, (vf)(0.813921094f));
  p = fma(p, near, (vf)(0.75f));
  vf q = (vf)(0.00467500696f);
  q = fma(q, near, (vf)(0.055979155f));
  q = fma(q, near, (vf)(0.311882406f));
  q = fma(q, near, (vf)(0.944697738f));
  const vf r = p / fma(near, fma(p, (vf)(2.50662827f), q), (vf)(1.5f));
  const vf slope = fma(x, (vf)(-0.398942292f), r);
  return (gelu_tail){fma(r, e.more, r) * e.power, fma(slope, e.more, slope) * e.power, e.scale};
}
static inlined gelu_tail gelu_tanh_tail(vf a) {
  const vf x = fabs(a), near = fabs(between_of(-10.85f, a, 7.0f)), third = (vf)(22.375f);
  const vf v = fma(near, near, third), v_low = product_error(near, near, v - third) - 1.11399978e-2f;
  const vf c = (vf)(-7.13548139e-2f), b = near * c, y = b * v;
  const vf b_low = fma(near, (vf)(-2.39883247e-9f), product_error(near, c, b));
  const vf y_low = fma(b_low, v, fma(b, v_low, product_error(b, v, y)));
  const gelu_exp part = gelu_exp_of(y, y_low, near, x);
  const vf e = fma(part.more, part.power, part.power);
  const vf rest = 1 / fma(e, part.scale, (vf)(1.0f)), phi = e * rest;
  const vf steep = fma(near * near, (vf)(2.14064449e-1f), (vf)(1.59576917f));
  return (gelu_tail){phi, fma(-(phi * rest * steep), x, phi), part.scale};
}
static inlined vf gelu_slope(gelu_tail g, vf a, vf *value) {
  const vi negative = a < 0;
  *value = a * either(negative, g.phi, 1 - g.phi) * g.scale;
  return either(negative, g.slope, 1 - g.slope) * g.scale;
}

#endif
