/* The functions of simd_math.h in every variant against libm in long double. It tries 2048 numbers of every binade of both
 * signs, every number around the places where a function changes its formula, and NaN.
 * ctest: slow */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/half.h"
#include "cpu/math_probe.h"

enum { A_BINADE = 2048, BINADES = 277, AROUND = 512 };

/* ---- the true values ---- */

static long double sigma(long double u) { return 1 / (1 + expl(-u)); }
static long double true_exp(float x) { return expl((long double)x); }
static long double true_expm1(float x) { return expm1l((long double)x); }
static long double true_exp2(float x) { return exp2l((long double)x); }
static long double true_exp_split(float x) { return expl(fmaxl((long double)x, -87.33654L)); }
static long double true_log(float x) { return logl((long double)x); }
static long double true_tanh(float x) { return tanhl((long double)x); }
static long double true_tanh_slope(float x) {
  const long double c = coshl((long double)x);
  return 1 / c / c;
}
static long double true_silu(float u) { return (long double)u / (1 + expl(-(long double)u)); }
static long double true_silu_slope(float u) {
  return sigma((long double)u) * (1 + (long double)u * sigma(-(long double)u));
}
/* The terms of silu's slope in absolute value: 1 + u (1 - sigma) cancels near u = -1.28. */
static long double silu_slope_size(float u) {
  return sigma((long double)u) * (1 + fabsl((long double)u) * sigma(-(long double)u));
}

static long double silu_size(float u) { return fabsl(true_silu(u)); }

/* sigma(y(a)), or Phi(a), times a; its slope; the slope's terms in absolute value. */
static long double tanh_y(long double a) { return sqrtl(8 / acosl(-1)) * a * (1 + 0.044715L * a * a); }
static long double tanh_bend(long double a) {
  return a * sqrtl(8 / acosl(-1)) * (1 + 3 * 0.044715L * a * a) * sigma(tanh_y(a)) * sigma(-tanh_y(a));
}
static long double true_gelu_tanh(float a) { return (long double)a * sigma(tanh_y((long double)a)); }
static long double true_gelu_tanh_slope(float a) { return sigma(tanh_y((long double)a)) + tanh_bend((long double)a); }
static long double gelu_tanh_slope_size(float a) {
  return sigma(tanh_y((long double)a)) + fabsl(tanh_bend((long double)a));
}
static long double phi(long double a) { return erfcl(-a / sqrtl(2)) / 2; }
static long double erf_bend(long double a) { return a * expl(-a * a / 2) / sqrtl(2 * acosl(-1)); }
static long double true_gelu_erf(float a) { return (long double)a * phi((long double)a); }
static long double true_gelu_erf_slope(float a) { return phi((long double)a) + erf_bend((long double)a); }
static long double gelu_erf_slope_size(float a) { return phi((long double)a) + fabsl(erf_bend((long double)a)); }
static long double gelu_tanh_size(float a) { return fabsl(true_gelu_tanh(a)); }
static long double gelu_erf_size(float a) { return fabsl(true_gelu_erf(a)); }

/* Distance of neighbouring floats around v. */
static double ulp(long double v) {
  int exponent;
  frexpl(v, &exponent);
  return v != 0 && exponent > -125 ? ldexp(1, exponent - 24) : 0x1p-149;
}

/* ---- measuring ---- */

/* A result on [low, high]: |result - truth| <= bound * unit. The unit is an ulp of the truth; with `size` it is 2^-24 *
 * size(x) and the least denormal. */
typedef struct measure {
  const char *name;
  tigon_math_function function;
  bool second;
  float low, high;
  long double (*truth)(float x);
  long double (*size)(float x);
  double bound;
} measure;

static const measure measures[] = {
    {"exp", TIGON_MATH_EXP, false, -87.33654f, 88.72283f, true_exp, NULL, 1.1},
    {"exp_all", TIGON_MATH_EXP_ALL, false, -INFINITY, 88.72283f, true_exp, NULL, 1.5},
    {"expm1", TIGON_MATH_EXPM1, false, -INFINITY, 88.72283f, true_expm1, NULL, 1.5},
    {"exp2", TIGON_MATH_EXP2, false, -FLT_MAX, 127, true_exp2, NULL, 2},
    {"exp_split", TIGON_MATH_EXP_SPLIT, false, -INFINITY, 88.37f, true_exp_split, NULL, 2.5},
    {"log", TIGON_MATH_LOG, false, 0x1p-149f, FLT_MAX, true_log, NULL, 1},
    {"tanh", TIGON_MATH_TANH, false, -INFINITY, INFINITY, true_tanh, NULL, 2.5},
    {"tanh slope", TIGON_MATH_TANH, true, -43, 43, true_tanh_slope, NULL, 5.5},
    {"silu", TIGON_MATH_SILU, false, -FLT_MAX, FLT_MAX, true_silu, NULL, 2.5},
    {"silu beside slope", TIGON_MATH_SILU_SLOPE, true, -FLT_MAX, FLT_MAX, true_silu, NULL, 3},
    {"silu slope", TIGON_MATH_SILU_SLOPE, false, -FLT_MAX, FLT_MAX, true_silu_slope, silu_slope_size, 4},
    {"silu_16", TIGON_MATH_SILU_16, false, -FLT_MAX, FLT_MAX, true_silu, silu_size, 110},
    {"silu_bf16", TIGON_MATH_SILU_BF16, false, -FLT_MAX, FLT_MAX, true_silu, silu_size, 520},
    {"silu_16 beside slope", TIGON_MATH_SILU_SLOPE_16, true, -FLT_MAX, FLT_MAX, true_silu, silu_size, 110},
    {"silu_16 slope", TIGON_MATH_SILU_SLOPE_16, false, -FLT_MAX, FLT_MAX, true_silu_slope, silu_slope_size, 110},
    {"gelu tanh", TIGON_MATH_GELU_TANH, true, -FLT_MAX, FLT_MAX, true_gelu_tanh, NULL, 3.5},
    {"gelu tanh slope", TIGON_MATH_GELU_TANH, false, -FLT_MAX, FLT_MAX, true_gelu_tanh_slope, gelu_tanh_slope_size, 6},
    {"gelu erf", TIGON_MATH_GELU_ERF, true, -FLT_MAX, FLT_MAX, true_gelu_erf, NULL, 3.5},
    {"gelu erf slope", TIGON_MATH_GELU_ERF, false, -FLT_MAX, FLT_MAX, true_gelu_erf_slope, gelu_erf_slope_size, 4},
    {"gelu_16 tanh", TIGON_MATH_GELU_TANH_16, true, -FLT_MAX, FLT_MAX, true_gelu_tanh, gelu_tanh_size, 170},
    {"gelu_16 tanh slope", TIGON_MATH_GELU_TANH_16, false, -FLT_MAX, FLT_MAX, true_gelu_tanh_slope,
     gelu_tanh_slope_size, 170},
    {"gelu_16 erf", TIGON_MATH_GELU_ERF_16, true, -FLT_MAX, FLT_MAX, true_gelu_erf, gelu_erf_size, 170},
    {"gelu_16 erf slope", TIGON_MATH_GELU_ERF_16, false, -FLT_MAX, FLT_MAX, true_gelu_erf_slope, gelu_erf_slope_size,
     170},
};

enum { MOST_VARIANTS = 8 };

typedef struct worst {
  double error;
  float at;
} worst;

/* Every variant on n numbers. */
static void measure_numbers(const measure *m, const float *x, int n, worst worst[MOST_VARIANTS]) {
  static long double truth[A_BINADE], unit[A_BINADE];
  static float first[A_BINADE], second[A_BINADE];
  for (int i = 0; i < n; ++i) {
    if (!(x[i] >= m->low && x[i] <= m->high)) continue;
    truth[i] = m->truth(x[i]);
    unit[i] = m->size ? 0x1p-24L * m->size(x[i]) + 0x1p-149L : (long double)ulp(truth[i]);
  }
  const tigon_kernels *const *variants = tigon_backend_find("cpu")->variants();
  for (int v = 0; variants[v]; ++v) {
    assert_in_range(v, 0, MOST_VARIANTS - 1);
    tigon_cpu_math_probe_of(variants[v])(m->function, x, first, second, n);
    for (int i = 0; i < n; ++i) {
      if (!(x[i] >= m->low && x[i] <= m->high)) continue;
      const double error = (double)(fabsl((long double)(m->second ? second[i] : first[i]) - truth[i]) / unit[i]);
      if (!(error <= worst[v].error)) worst[v].error = error, worst[v].at = x[i];
    }
  }
}

static void measure_one(const measure *m) {
  /* Ends of ranges; where n of e^x = 2^n e^r becomes 128; where silu's and gelu's scale and tanh's formula change; the last
   * silu and gelu; where gelu's slope is 0. */
  static const float places[] = {-87.33654f, 88.72283f, 88.37626f, 87.0f,    -87.0f,   -110.0f, 30.0f,   20.79442f,
                                 -43.67f,    -44.015f,  -44.36f,   -103.97f, -108.23f, 0.625f,  -0.625f, 0.34657359f};
  static float x[A_BINADE];
  worst worst[MOST_VARIANTS] = {{0, 0}};
  uint32_t seed = 1;
  for (int b = 0; b < 2 * BINADES; ++b) {
    const float low = ldexpf(1, b / 2 - 149);
    const uint32_t span = b / 2 < 23 ? UINT32_C(1) << b / 2 : UINT32_C(1) << 23;
    for (int i = 0; i < A_BINADE; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const float f = i ? tigon_from_bits(tigon_bits(low) + (uint32_t)((uint64_t)seed * span >> 32)) : low;
      x[i] = b % 2 ? -f : f;
    }
    measure_numbers(m, x, A_BINADE, worst);
  }
  for (size_t p = 0; p < sizeof places / sizeof *places; ++p) {
    for (int i = 0; i < AROUND; ++i) x[i] = tigon_from_bits(tigon_bits(places[p]) + (uint32_t)(i - AROUND / 2));
    measure_numbers(m, x, AROUND, worst);
  }
  const tigon_kernels *const *variants = tigon_backend_find("cpu")->variants();
  for (int v = 0; variants[v]; ++v) {
    print_message("%-7s %-20s %.3f at %.9g, must be <= %g\n", variants[v]->variant, m->name, worst[v].error,
                  (double)worst[v].at, m->bound);
    assert_true(worst[v].error <= m->bound);
  }
}

static void test_errors(void **state) {
  (void)state;
  for (size_t m = 0; m < sizeof measures / sizeof *measures; ++m) measure_one(&measures[m]);
}

/* ---- the ends ---- */

static bool same(float a, float b) { return isnan(b) ? isnan(a) : tigon_bits(a) == tigon_bits(b); }

static void test_ends(void **state) {
  (void)state;
  const float inf = INFINITY, nan = NAN, tiny = 0x1p-149f, skip = 12345.0f;
  const struct end {
    tigon_math_function function;
    float x, first, second; /* skip: not looked at */
  } ends[] = {
      {TIGON_MATH_EXP, 0, 1, skip},
      {TIGON_MATH_EXP, -0.0f, 1, skip},
      {TIGON_MATH_EXP, tiny, 1, skip},
      {TIGON_MATH_EXP, nan, nan, skip},
      {TIGON_MATH_EXP, -nan, nan, skip},
      {TIGON_MATH_EXP, inf, inf, skip},
      {TIGON_MATH_EXP, -inf, 0, skip},
      {TIGON_MATH_EXP, nextafterf(88.72283f, 100), inf, skip},
      {TIGON_MATH_EXP, nextafterf(-87.33654f, -100), 0, skip},
      {TIGON_MATH_EXP, FLT_MAX, inf, skip},
      {TIGON_MATH_EXP, -FLT_MAX, 0, skip},
      {TIGON_MATH_EXP2, nan, nan, skip},
      {TIGON_MATH_EXP2, -inf, 0, skip},
      {TIGON_MATH_EXP2, 0, 1, skip},
      {TIGON_MATH_EXP_SPLIT, nan, nan, skip},
      {TIGON_MATH_LOG, nan, nan, skip},
      {TIGON_MATH_LOG, inf, inf, skip},
      {TIGON_MATH_LOG, 0, -inf, skip},
      {TIGON_MATH_LOG, 1, 0, skip},
      {TIGON_MATH_LOG, -1, nan, skip},
      {TIGON_MATH_LOG, -inf, nan, skip},
      {TIGON_MATH_TANH, nan, nan, nan},
      {TIGON_MATH_TANH, inf, 1, 0},
      {TIGON_MATH_TANH, -inf, -1, 0},
      {TIGON_MATH_TANH, 0, 0, 1},
      {TIGON_MATH_SILU, nan, nan, skip},
      {TIGON_MATH_SILU, inf, inf, skip},
      {TIGON_MATH_SILU, -inf, nan, skip},
      {TIGON_MATH_SILU, -0.0f, -0.0f, skip},
      {TIGON_MATH_SILU, FLT_MAX, FLT_MAX, skip},
      {TIGON_MATH_SILU, -FLT_MAX, -0.0f, skip},
      {TIGON_MATH_SILU, 2 * tiny, tiny, skip},
      {TIGON_MATH_SILU_SLOPE, nan, nan, nan},
      {TIGON_MATH_SILU_SLOPE, inf, nan, inf},
      {TIGON_MATH_SILU_SLOPE, -inf, nan, nan},
      {TIGON_MATH_SILU_SLOPE, FLT_MAX, 1, FLT_MAX},
      {TIGON_MATH_SILU_SLOPE, -FLT_MAX, -0.0f, -0.0f},
      {TIGON_MATH_SILU_SLOPE, 0, 0.5f, 0},
      {TIGON_MATH_SILU_16, nan, nan, skip},
      {TIGON_MATH_SILU_16, inf, inf, skip},
      {TIGON_MATH_SILU_16, -inf, nan, skip},
      {TIGON_MATH_SILU_16, -FLT_MAX, -0.0f, skip},
      {TIGON_MATH_SILU_BF16, nan, nan, skip},
      {TIGON_MATH_SILU_BF16, inf, inf, skip},
      {TIGON_MATH_SILU_BF16, -inf, nan, skip},
      {TIGON_MATH_SILU_BF16, -FLT_MAX, -0.0f, skip},
      {TIGON_MATH_SILU_SLOPE_16, nan, nan, nan},
      {TIGON_MATH_SILU_SLOPE_16, inf, nan, inf},
      {TIGON_MATH_SILU_SLOPE_16, -inf, nan, nan},
      {TIGON_MATH_SILU_SLOPE_16, -FLT_MAX, -0.0f, -0.0f},
      {TIGON_MATH_GELU_TANH, nan, nan, nan},
      {TIGON_MATH_GELU_TANH, inf, nan, inf},
      {TIGON_MATH_GELU_TANH, -inf, nan, nan},
      {TIGON_MATH_GELU_TANH, FLT_MAX, 1, FLT_MAX},
      {TIGON_MATH_GELU_TANH, -FLT_MAX, 0, -0.0f},
      {TIGON_MATH_GELU_TANH, -0.0f, 0.5f, -0.0f},
      {TIGON_MATH_GELU_TANH, 2 * tiny, 0.5f, tiny},
      {TIGON_MATH_GELU_ERF, nan, nan, nan},
      {TIGON_MATH_GELU_ERF, inf, nan, inf},
      {TIGON_MATH_GELU_ERF, -inf, nan, nan},
      {TIGON_MATH_GELU_ERF, FLT_MAX, 1, FLT_MAX},
      {TIGON_MATH_GELU_ERF, -FLT_MAX, -0.0f, -0.0f},
      {TIGON_MATH_GELU_ERF, -0.0f, 0.5f, -0.0f},
      {TIGON_MATH_GELU_ERF, 2 * tiny, 0.5f, tiny},
      {TIGON_MATH_GELU_TANH_16, nan, nan, nan},
      {TIGON_MATH_GELU_TANH_16, inf, nan, inf},
      {TIGON_MATH_GELU_TANH_16, -inf, nan, nan},
      {TIGON_MATH_GELU_TANH_16, -FLT_MAX, 0, -0.0f},
      {TIGON_MATH_GELU_ERF_16, nan, nan, nan},
      {TIGON_MATH_GELU_ERF_16, inf, nan, inf},
      {TIGON_MATH_GELU_ERF_16, -inf, nan, nan},
      {TIGON_MATH_GELU_ERF_16, FLT_MAX, 1, FLT_MAX},
      {TIGON_MATH_GELU_ERF_16, -FLT_MAX, -0.0f, -0.0f},
  };
  for (const tigon_kernels *const *v = tigon_backend_find("cpu")->variants(); *v; ++v)
    for (size_t i = 0; i < sizeof ends / sizeof *ends; ++i) {
      const struct end *e = &ends[i];
      float first = skip, second = skip;
      tigon_cpu_math_probe_of (*v)(e->function, &e->x, &first, &second, 1);
      if (!same(first, e->first) || (e->second != skip && !same(second, e->second)))
        print_error("%s: function %d of %.9g is %.9g, %.9g, must be %.9g, %.9g\n", (*v)->variant, (int)e->function,
                    (double)e->x, (double)first, (double)second, (double)e->first, (double)e->second);
      assert_true(same(first, e->first));
      assert_true(e->second == skip || same(second, e->second));
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_errors), cmocka_unit_test(test_ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
