/* The formulas of src/core on the scalar pipe, which has no C library: this header has the functions that they call, in f32. Only
 * functions of f32 may be used from there: the AI core has no f64, and global memory is not the scalar pipe's. */
#ifndef TIGON_ASCEND_KERNEL_FORMULAS_H
#define TIGON_ASCEND_KERNEL_FORMULAS_H

#include <math.h>

#include "ascend/kernel/rows.h"
#include "ascend/kernel/scalar.h"

AICORE float s_abs(float x) { return x < 0 ? -x : x; }
/* The larger one; b where a is NaN. */
AICORE float s_max(float a, float b) { return a > b ? a : b; }

/* x * 2^n for |n| <= 200, rounded once where it is denormal. */
AICORE float times_power(float x, int64_t n) {
  const int64_t half = n / 2;
  return x * power_of_two(half) * power_of_two(n - half);
}

/* e^r - 1 for |r| <= ln 2 / 2: the polynomial of cpu/simd_math.h. */
AICORE float exp_less_1(float r) {
  const float s = r * r;
  const float middle = 1.666652063e-1f * r + 4.999999345e-1f;
  const float high = 1.381459865e-3f * s + (8.36871688e-3f * r + 4.166838805e-2f);
  return (high * s + middle) * s + r;
}
/* r of x = n ln 2 + r for |x| < 110. */
AICORE float exp_reduce(float x, int64_t *n) {
  const float shifter = 12582912.0f; /* 1.5 * 2^23 */
  const float shifted = x * 1.44269504f + shifter;
  const float whole = shifted - shifter;
  const float near = x - whole * 0.693359375f;
  *n = (int64_t)whole;
  return near - whole * -2.12194440e-4f;
}

/* Each within 2 ulp, denormals too, as a C library's. */
AICORE float s_exp(float x) {
  int64_t n;
  if (x != x) return x;
  if (x > 88.72283f) return __builtin_inff();
  if (x < -104.0f) return 0;
  const float more = exp_less_1(exp_reduce(x, &n));
  return times_power(1 + more, n);
}
AICORE float s_expm1(float x) {
  int64_t n;
  if (x != x) return x;
  if (x > 88.72283f) return __builtin_inff();
  if (x < -40.0f) return -1;
  const float q = exp_less_1(exp_reduce(x, &n));
  if (n == 0) return q;
  const float half = power_of_two(n - 1); /* e^x may be 2^128 times a number below 1 */
  const float part = half * q;
  const float rest = half - 0.5f;
  return 2 * (part + rest);
}
/* log(2^n (1 + r)) = n ln 2 + 2 s (1 + s^2 / 3 + s^4 / 5 + ..) with s = r / (2 + r), 2/3 <= 1 + r < 4/3. */
AICORE float s_log(float x) {
  if (x != x || x == __builtin_inff()) return x;
  if (!(x > 0)) return x < 0 ? __builtin_nanf("") : -__builtin_inff();
  float m = x, n = 0;
  for (int64_t k = 64; k > 0; k /= 2) {
    const float up = power_of_two(k), down = power_of_two(-k);
    for (int twice = 0; twice < 2; ++twice) { /* 2^-149 has to go up by more than 127 */
      if (m >= up) m *= down, n += (float)k;
      if (m < down) m *= up, n -= (float)k;
    }
  }
  if (m >= 1.33333333f) m *= 0.5f, n += 1;
  if (m < 0.666666667f) m *= 2, n -= 1;
  const float r = m - 1;
  const float s = r / (2 + r);
  const float w = s * s;
  const float p = ((1.11111111e-1f * w + 1.42857143e-1f) * w + 2.0e-1f) * w + 3.33333333e-1f;
  const float off = s * (r - 2 * (w * p));
  const float low = r - (n * 2.12194440e-4f + off);
  return n * 0.693359375f + low;
}
/* What 1 + x has lost is put back, over 1 + x. */
AICORE float s_log1p(float x) {
  const float sum = 1 + x;
  if (sum == 1) return x;
  if (!(sum > 0) || sum == __builtin_inff()) return s_log(sum);
  const float kept = sum - 1;
  const float lost = x - kept;
  return s_log(sum) + lost / sum;
}

/* log x within 2^-36 * (1 + |log x|): x = 2^n m, 1 <= m < 2, and log m = y + log(m e^-y) with y near it. */
AICORE twofold twofold_log(twofold x) {
  int64_t n = 0;
  if (!(x.hi > 0) || x.hi == __builtin_inff()) return (twofold){s_log(x.hi), 0};
  for (int64_t k = 64; k > 0; k /= 2)
    for (int twice = 0; twice < 2; ++twice) { /* 2^-149 has to go up by more than 127 */
      const bool down = x.hi >= power_of_two(k), up = x.hi < power_of_two(1 - k);
      const int64_t by = down ? -k : up ? k : 0;
      x = (twofold){x.hi * power_of_two(by), x.lo * power_of_two(by)};
      n -= by;
    }
  const float y = s_log(x.hi);
  const twofold rest = twofold_add(twofold_mul(x, twofold_exp((twofold){-y, 0})), -1);
  const twofold whole = two_product((float)n, TWOFOLD_LN2);
  const float whole_low = (float)n * TWOFOLD_LN2_LOW;
  return twofold_add(twofold_sum(whole, twofold_add(rest, y)), whole_low);
}

#define expf(x) s_exp(x)
#define expm1f(x) s_expm1(x)
#define logf(x) s_log(x)
#define log1pf(x) s_log1p(x)
#define fabsf(x) s_abs(x)
#define fmaxf(a, b) s_max(a, b)

/* ---- numbers of tokens, sequences and pairs ---- */

AICORE twofold twofold_count(int64_t n) {
  const float high = (float)n;
  return (twofold){high, high < 0x1p63f ? (float)(n - (int64_t)high) : 0};
}
/* 1 / a, of what is not finite, too. */
AICORE twofold reciprocal(twofold a) {
  return a.hi - a.hi == 0 && a.hi != 0 ? twofold_inverse(a) : (twofold){1 / a.hi, 0};
}

/* ---- arrays: a kernel that works on the scalar pipe lets all others end first ---- */

AICORE void load_words(ub_f32 to, gm_ptr from, int64_t first, int64_t n, int64_t words) {
  if (from) load_f32(to, from + first * words * 4, 1, n * words);
}
AICORE void store_array(gm_ptr to, ub_f32 from, int64_t first, int64_t n) {
  if (to) store_f32(to + first * 4, from, 1, n);
}
/* One number, which is written to `from` first. */
AICORE void store_number(gm_ptr to, ub_f32 from, float value) {
  if (!to) return;
  s_write_f32(from, 0, value);
  stores_after_scalar();
  store_f32(to, from, 1, 1);
  scalar_after_stores();
}
/* The number at `from`, or `otherwise` where there is none. */
AICORE float load_number(ub_f32 to, gm_ptr from, int64_t at, float otherwise) {
  if (!from) return otherwise;
  loads_after_scalar();
  load_f32(to, from + at * 4, 1, 1);
  scalar_after_loads();
  return s_read_f32(to, 0);
}

#endif
