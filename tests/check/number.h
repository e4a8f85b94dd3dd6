/* Running error analysis: a number, and how far an f32 computation of it may be off, in units of 2^-24.
 *
 * A rounding is one unit of its result; exp, log, log1p and expm1 are within 2 ulp, which are 4 units, and by a device's own
 * calls more. What is below 2^-126 may be off by half of 2^-149. `own` adds what a call and a division of the device may be off. */
#ifndef TIGON_CHECK_NUMBER_H
#define TIGON_CHECK_NUMBER_H

#include <math.h>

#include "check/check.h"

typedef struct num {
  double v, e;
} num;

/* An error beyond any f32 stays a number, so that 0 times it is 0. */
static inline num made(double v, double e) { return (num){v, isfinite(v) ? fmin(e, 0x1p500) + 0x1p-126 : 0}; }
static inline num exactly(double v) { return (num){v, 0}; }
static inline num plus(num a, num b) { return made(a.v + b.v, a.e + b.e + fabs(a.v + b.v)); }
static inline num minus(num a) { return (num){-a.v, a.e}; }
static inline num less(num a, num b) { return plus(a, minus(b)); }
static inline num times(num a, num b) {
  return made(a.v * b.v, fabs(a.v) * b.e + fabs(b.v) * a.e + a.e * b.e * 0x1p-24 + fabs(a.v * b.v));
}
static inline num over(const check *k, num a, double b) { /* for a b without an error */
  return made(a.v / b, a.e / fabs(b) + (1 + check_calls(k, 0, 1)) * fabs(a.v / b));
}

/* By what factor e^x may have grown within the error of x. */
static inline double growth(num x) { return exp(fmin(x.e * 0x1p-24, 700)); }
static inline double logistic_of(double x) { return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x)); }
static inline double soft_of(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))); }

/* The slope is s(x), which is no larger than 1 anywhere. */
static inline num soft(const check *k, num x) {
  const double v = soft_of(x.v), own = check_calls(k, 2, 0) + check_flushed(k);
  return made(v, (9 + own) * v + x.e * fmin(1, logistic_of(x.v) * growth(x)));
}
/* The slope is below s(x) and 1/4; and no two values are further apart than 1. */
static inline num logistic(const check *k, num x) {
  const double v = logistic_of(x.v), own = check_calls(k, 1, 1);
  return made(v, (6 + own) * v + check_flushed(k) + fmin(x.e * fmin(0.25, v * growth(x)), 0x1p24));
}
static inline num exponential(const check *k, num x) {
  const double v = exp(x.v);
  return made(v, (4 + check_calls(k, 1, 0)) * v + check_flushed(k) + v * x.e * growth(x));
}

#endif
