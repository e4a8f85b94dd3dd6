/* The functions of simd_math.h on arrays, so that tests/cpu/math.c, which is compiled without instruction-set flags, can
 * measure them in every variant. */
#ifndef TIGON_CPU_MATH_PROBE_H
#define TIGON_CPU_MATH_PROBE_H

#include "backend.h"

typedef enum tigon_math_function {
  TIGON_MATH_EXP,
  TIGON_MATH_EXP_ALL,
  TIGON_MATH_EXPM1,
  TIGON_MATH_EXP2,
  TIGON_MATH_EXP_SPLIT, /* the product of its parts */
  TIGON_MATH_LOG,
  TIGON_MATH_TANH, /* second: the slope */
  TIGON_MATH_SILU,
  TIGON_MATH_SILU_SLOPE, /* second: silu */
  TIGON_MATH_SILU_16,
  TIGON_MATH_SILU_BF16,
  TIGON_MATH_SILU_SLOPE_16, /* second: silu */
  TIGON_MATH_GELU_TANH,     /* second of these four: gelu; it is the same beside the slope and alone */
  TIGON_MATH_GELU_ERF,
  TIGON_MATH_GELU_TANH_16,
  TIGON_MATH_GELU_ERF_16,
} tigon_math_function;

/* y[i] = f(x[i]); second[i] the function's second result, untouched where it has none. */
typedef void tigon_math_probe(tigon_math_function f, const float *x, float *y, float *second, int64_t n);
tigon_math_probe tigon_cpu_scalar_math_probe, tigon_cpu_avx2_math_probe, tigon_cpu_avx512_math_probe,
    tigon_cpu_avx512_bf16_math_probe, tigon_cpu_amx_math_probe;

/* The probe of a variant of the CPU. */
tigon_math_probe *tigon_cpu_math_probe_of(const tigon_kernels *kernels);

#endif
