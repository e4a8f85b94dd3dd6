/* Finite differences of the oracle: its slots run in double (TIGON_F64), so the gradient of <dy, f(x)> can be had to
 * about h^4 from four points. */
#ifndef TIGON_TEST_GRAD_H
#define TIGON_TEST_GRAD_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ref/ref.h"

#define GRAD_F64 ((tigon_dtype)TIGON_F64)

/* Members of a problem over dense tensors [ROWS, COLS], which a file names so. */
#define GRAD_SHAPE .space = {ROWS, 1, ROWS}, .cols = COLS, .dtype = GRAD_F64

/* Deterministic numbers in [-1, 1). */
static inline void grad_fill(double *data, int count, unsigned seed) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (double)(seed >> 8) * 0x1p-23 - 1;
  }
}

/* d loss / d x[i] by the 4-point rule, against gradient[i], relative to the largest entry. */
static inline void grad_expect(const char *name, double (*loss)(void *), void *argument, double *x,
                               const double *gradient, int count, double tolerance) {
  double largest = 0;
  for (int i = 0; i < count; ++i) largest = fmax(largest, fabs(gradient[i]));
  const double h = 1e-3;
  double worst = 0;
  for (int i = 0; i < count; ++i) {
    const double at = x[i];
    double f[4];
    for (int k = 0; k < 4; ++k) {
      static const double steps[] = {-2, -1, 1, 2};
      x[i] = at + steps[k] * h;
      f[k] = loss(argument);
    }
    x[i] = at;
    const double slope = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
    if (!(fabs(slope - gradient[i]) <= tolerance * largest)) {
      print_error("%s[%d] is %.12g, the difference quotient is %.12g\n", name, i, gradient[i], slope);
      fail();
    }
    if (largest > 0) worst = fmax(worst, fabs(slope - gradient[i]) / largest);
  }
  print_message("%s: %d entries within %.2g of the largest\n", name, count, worst);
}

static inline double grad_dot(const double *a, const double *b, int count) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/* A dense [rows, cols] tensor of a problem. */
static inline tigon_rows grad_rows(double *data, int cols) { return (tigon_rows){data, {0, 0, cols}}; }

/* The program of a file's tests. */
#define GRAD_MAIN(...)                                \
  int main(void) {                                    \
    const struct CMUnitTest tests[] = {__VA_ARGS__};  \
    return cmocka_run_group_tests(tests, NULL, NULL); \
  }

static inline tigon_vector grad_vector(double *data) { return (tigon_vector){data, GRAD_F64}; }

#endif
