/* exp, log and what is made of them, for V, which is float or a vector, and I, its int; FN makes a name. math.cl takes this file twice.
 * src/cpu/simd_math.h has the same polynomials and says where they come from; within 2.5 ULP unless said, denormals too
 * (tests/opencl/math.c). */
static inline V FN(add_exponent)(V p, I n) { return AS_V(AS_I(p) + (n << 23)); }
/* A NaN stays. */
static inline V FN(at_least)(float low, V x) { return select(x, (V)(low), x < low); }
static inline V FN(at_most)(float high, V x) { return select(x, (V)(high), x > high); }
static inline V FN(between)(float low, V x, float high) { return FN(at_most)(high, FN(at_least)(low, x)); }

/* a * 2^n, -250 <= n <= 128, in two steps, so that a denormal is rounded once. */
static inline V FN(scale)(V a, I n) {
  const I half_of = n >> 1;
  return a * AS_V((half_of + 127) << 23) * AS_V((n - half_of + 127) << 23);
}

/* e^r - 1 of |r| <= ln 2 / 2 */
static inline V FN(exp_less_1)(V r) {
  const V s = r * r, middle = fma((V)(1.666652063e-1f), r, (V)(4.999999345e-1f));
  const V high = fma((V)(1.381459865e-3f), s, fma((V)(8.36871688e-3f), r, (V)(4.166838805e-2f)));
  return fma(fma(high, s, middle), s, r);
}
/* r of x = n ln 2 + r, |x| <= 110. The sum with 1.5 * 2^23 + bias has n + bias in its last bits. */
static inline V FN(exp_parts)(V x, int bias, I *bits) {
  const V base = 0x1.8p23f + bias, near = fma(x, (V)(1.44269504f), base), whole = near - base;
  *bits = AS_I(near);
  return fma(whole, (V)(2.12194440e-4f), fma(whole, (V)(-0.693359375f), x));
}
static inline V FN(exp_reduce)(V x, I *n) {
  const V r = FN(exp_parts)(x, 0, n);
  *n -= 0x4b400000;
  return r;
}

/* e^x; that of 89 is Inf. */
static inline V FN(exp)(V x) {
  I n;
  const V p = 1 + FN(exp_less_1)(FN(exp_reduce)(FN(between)(-104.0f, x, 89.0f), &n));
  return FN(scale)(p, n);
}
/* e^x of x <= 64. A denormal is rounded once. */
static inline V FN(exp_to_64)(V x) {
  I bits;
  const V q = FN(exp_less_1)(FN(exp_parts)(FN(at_least)(-104.0f, x), 159, &bits)), power = AS_V(bits << 23);
  return fma(q, power, power) * 0x1p-32f;
}
/* e^x of -86 <= x <= 64; that of what is outside is the limit's. */
static inline V FN(exp_near)(V x) {
  I bits;
  const V q = FN(exp_less_1)(FN(exp_parts)(FN(between)(-86.0f, x, 64.0f), 127, &bits)), power = AS_V(bits << 23);
  return fma(q, power, power);
}

/* e^x - 1 */
static inline V FN(expm1)(V x) {
  I n;
  const V q = FN(exp_less_1)(FN(exp_reduce)(FN(between)(-40.0f, x, 89.0f), &n));
  const V half_of = AS_V((n + 126) << 23), part = fma(half_of, q, half_of - 0.5f);
  return select(part + part, q, half_of == 0.5f);
}

/* log x: -Inf of 0, NaN of what is negative. */
static inline V FN(log)(V x) {
  const I small = x < 0x1p-126f, u = AS_I(select(x, x * 0x1p24f, small)), n = (u - 0x3f2aaaab) >> 23;
  const V r = AS_V(u - (n << 23)) - 1, e = TO_V(n - select((I)(0), (I)(24), small)), s = r / (r + 2), w = s * s;
  V p = (V)(1.11111111e-1f);
  p = fma(p, w, (V)(1.42857143e-1f));
  p = fma(p, w, (V)(2.0e-1f));
  p = fma(p, w, (V)(3.33333333e-1f));
  const V off = s * fma(w * p, (V)(-2.0f), r);
  V y = fma(e, (V)(0.693359375f), r - fma(e, (V)(2.12194440e-4f), off));
  y = select(y, x, x == INFINITY);
  y = select((V)(NAN), y, x > 0);
  return select(y, (V)(-INFINITY), x == 0);
}

/* log(1 + x): the logarithm of 1 + x as it is rounded, and the rounding divided by it; within 3 ULP. */
static inline V FN(log1p)(V x) {
  const V u = 1 + x, y = FN(log)(u), near = y - ((u - 1) - x) / u;
  return select(select(near, y, u == 0 || u == INFINITY), x, u == 1);
}

/* 1 / (1 + e^-u) and its logarithm. */
static inline V FN(logistic)(V u) {
  const V e = FN(exp_to_64)(-fabs(u));
  return select((V)(1.0f), e, u < 0) / (1 + e);
}
static inline V FN(log_logistic)(V u) { return fmin(u, (V)(0.0f)) - FN(log1p)(FN(exp_to_64)(-fabs(u))); }

/* tanh x and its slope 1 - tanh^2 x within 5.5 ULP. */
static inline V FN(tanh_slope)(V x, V *slope) {
  const V e = FN(exp_to_64)(-2 * fabs(x)), q = 1 / (1 + e), far = (1 - e) * q, w = x * x;
  *slope = 4 * e * (q * q);
  V p = (V)(-5.70498872745e-3f);
  p = fma(p, w, (V)(2.06390887954e-2f));
  p = fma(p, w, (V)(-5.37397155531e-2f));
  p = fma(p, w, (V)(1.33314422036e-1f));
  p = fma(p, w, (V)(-3.33332819422e-1f));
  return select(copysign(far, x), fma(w * p, x, x), fabs(x) < 0.625f);
}
static inline V FN(tanh)(V x) {
  V slope;
  return FN(tanh_slope)(x, &slope);
}
