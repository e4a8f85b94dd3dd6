/* What the scalar pipe does by itself: handing over to it and from it, and numbers in two floats, which carry 48 bits. The AI core
 * has no f64. Each rounding of a two-float operation is a statement of its own, so that no compiler fuses two of them. */
#ifndef TIGON_ASCEND_KERNEL_SCALAR_H
#define TIGON_ASCEND_KERNEL_SCALAR_H

#include <tigon/base.h>

#include "ascend/aicore.h"

/* What one pipe has done is seen by another. These use flag 5 of their pairs, the highest that the vendor does
 * not keep for compilers and libraries of its own. */
AICORE void scalar_after_loads(void) {
  sync_set(PIPE_MTE2, PIPE_S, 5);
  sync_wait(PIPE_MTE2, PIPE_S, 5);
}
AICORE void scalar_after_vectors(void) {
  sync_set(PIPE_V, PIPE_S, 5);
  sync_wait(PIPE_V, PIPE_S, 5);
}
AICORE void vectors_after_scalar(void) {
  sync_set(PIPE_S, PIPE_V, 5);
  sync_wait(PIPE_S, PIPE_V, 5);
}
AICORE void loads_after_scalar(void) {
  sync_set(PIPE_S, PIPE_MTE2, 5);
  sync_wait(PIPE_S, PIPE_MTE2, 5);
}
AICORE void vectors_after_loads(void) {
  sync_set(PIPE_MTE2, PIPE_V, 5);
  sync_wait(PIPE_MTE2, PIPE_V, 5);
}
AICORE void loads_after_vectors(void) {
  sync_set(PIPE_V, PIPE_MTE2, 5);
  sync_wait(PIPE_V, PIPE_MTE2, 5);
}
AICORE void stores_after_scalar(void) {
  sync_set(PIPE_S, PIPE_MTE3, 5);
  sync_wait(PIPE_S, PIPE_MTE3, 5);
}
AICORE void scalar_after_stores(void) {
  sync_set(PIPE_MTE3, PIPE_S, 5);
  sync_wait(PIPE_MTE3, PIPE_S, 5);
}

/* Index i of what was loaded as 4-byte words, one of an i32 or two of an i64. */
AICORE int64_t index_words(int64_t dtype) { return dtype == TIGON_I64 ? 2 : 1; }
AICORE int64_t s_read_index(int64_t dtype, ub_f32 words, int64_t i) {
  if (dtype != TIGON_I64) return s_read_i32(words, i);
  return (int64_t)s_read_i32(words, 2 * i + 1) * ((int64_t)1 << 32) + (uint32_t)s_read_i32(words, 2 * i);
}

/* 2^k; 0 below the smallest normal number. */
AICORE float power_of_two(int64_t k) {
  float power = 1, by = k < 0 ? 0.5f : 2;
  if (k < -126) return 0;
  for (int64_t left = k < 0 ? -k : k; left > 0; left /= 2) {
    if (left % 2) power *= by;
    by *= by;
  }
  return power;
}

/* hi + lo, hi being the nearest float. */
typedef struct twofold {
  float hi, lo;
} twofold;

/* What is lost to an overflow counts as nothing. */
AICORE float finite_or_0(float x) { return x - x == 0 ? x : 0; }

/* The sum and product of two floats, exact but for overflow (Knuth, Dekker). */
AICORE twofold two_sum(float a, float b) {
  const float sum = a + b;
  const float b_part = sum - a;
  const float a_part = sum - b_part;
  const float a_error = a - a_part;
  const float b_error = b - b_part;
  const float error = a_error + b_error;
  return (twofold){sum, finite_or_0(error)};
}
AICORE twofold split_in_two(float a) {
  const float up = a * 4097.0f;
  const float over = up - a;
  const float hi = up - over;
  const float lo = a - hi;
  return (twofold){hi, lo};
}
AICORE twofold two_product(float a, float b) {
  const float product = a * b;
  const twofold x = split_in_two(a), y = split_in_two(b);
  const float p11 = x.hi * y.hi;
  const float p12 = x.hi * y.lo;
  const float p21 = x.lo * y.hi;
  const float p22 = x.lo * y.lo;
  float error = p11 - product;
  error += p12;
  error += p21;
  error += p22;
  return (twofold){product, finite_or_0(error)};
}

AICORE twofold twofold_add(twofold a, float b) {
  const twofold s = two_sum(a.hi, b);
  const float low = s.lo + a.lo;
  return two_sum(s.hi, low);
}
AICORE twofold twofold_sum(twofold a, twofold b) {
  const twofold s = twofold_add(a, b.hi);
  return twofold_add(s, b.lo);
}
AICORE twofold twofold_mul(twofold a, twofold b) {
  const twofold p = two_product(a.hi, b.hi);
  const float high_low = a.hi * b.lo;
  const float low_high = a.lo * b.hi;
  const float cross = high_low + low_high;
  const float low = p.lo + cross;
  return two_sum(p.hi, finite_or_0(low));
}
AICORE twofold twofold_times(twofold a, float b) { return twofold_mul(a, (twofold){b, 0}); }
/* 1 / a for a finite a that is not 0. */
AICORE twofold twofold_inverse(twofold a) {
  const float first = 1.0f / a.hi;
  const twofold product = twofold_times(a, first);
  const twofold rest = twofold_sum((twofold){1, 0}, (twofold){-product.hi, -product.lo});
  const float more = rest.hi * first;
  return two_sum(first, more);
}
AICORE twofold twofold_minus(twofold a) { return (twofold){-a.hi, -a.lo}; }
AICORE twofold twofold_difference(twofold a, twofold b) { return twofold_sum(a, twofold_minus(b)); }
AICORE bool twofold_less(twofold a, twofold b) { return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo); }

/* ln 2 in two parts. */
#define TWOFOLD_LN2 0.693147182f
#define TWOFOLD_LN2_LOW (-1.90465430e-9f)

/* e^a within 2^-36 of it, or 2^-148; 0 below -87, Inf from 88.7 on. */
AICORE twofold twofold_exp(twofold a) {
  enum { HALVINGS = 6 };
  const float ln2 = TWOFOLD_LN2, ln2_low = TWOFOLD_LN2_LOW;
  if (!(a.hi > -87)) return (twofold){a.hi < 0 ? 0 : a.hi, 0};
  if (a.hi > 88.7f) return (twofold){__builtin_inff(), 0};
  const int64_t n = (int64_t)(a.hi * 1.44269504f + (a.hi > 0 ? 0.5f : -0.5f)), twice = n > 0;
  const twofold whole = two_product((float)n, ln2);
  const float whole_low = (float)n * ln2_low;
  twofold r = twofold_sum(a, (twofold){-whole.hi, -whole.lo});
  r = twofold_add(r, -whole_low);
  const float shrink = 1.0f / (1 << HALVINGS);
  const twofold s = {r.hi * shrink, r.lo * shrink}, square = twofold_mul(s, s);
  float cube = square.hi * s.hi; /* s^3 / 6 + s^4 / 24 */
  const float quarter = s.hi * 0.25f;
  const float more = 1 + quarter;
  cube *= 0.166666667f;
  cube *= more;
  twofold q = twofold_sum(s, (twofold){0.5f * square.hi, 0.5f * square.lo}); /* e^s - 1 */
  q = twofold_add(q, cube);
  for (int i = 0; i < HALVINGS; ++i) q = twofold_sum((twofold){2 * q.hi, 2 * q.lo}, twofold_mul(q, q));
  q = twofold_add(q, 1);
  const float power = power_of_two(n - twice); /* 2^128 is beyond f32 */
  const float by = twice ? 2 : 1;
  const float hi = q.hi * power, lo = q.lo * power;
  return (twofold){hi * by, lo * by};
}

#endif
