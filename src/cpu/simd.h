/* The thin SIMD layer: one source per op, compiled once per instruction set with TIGON_ISA set to its name. A vf holds
 * LANES floats whatever the dtype in memory; the dtype is an argument that is constant once a kernel's always-inline body
 * is expanded, so its switches cost nothing.
 *
 * vf_min and vf_max return the second operand when one is NaN, as the instructions do. */
#ifndef TIGON_CPU_SIMD_H
#define TIGON_CPU_SIMD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/half.h"

#define TIGON_INLINE static inline __attribute__((always_inline))

/* What is known of values that are rounded to bf16, so that rounding needs no care for it. */
typedef enum v_values {
  V_ANY,    /* numbers and quiet NaNs */
  V_OWN,    /* the lower half of a NaN is 0, and nothing carries out of it */
  V_RARE,   /* as V_OWN, and few are denormal or 0 */
  V_NORMAL, /* as V_OWN, and none is denormal */
} v_values;

#if defined(TIGON_ISA_AVX512)
#include "cpu/simd_avx512.h"
#elif defined(TIGON_ISA_AVX2)
#include "cpu/simd_avx2.h"
#else
#include "cpu/simd_scalar.h"
#endif
#if !defined(TIGON_ISA_AVX512)
/* No table lies in registers, and nothing is done for the sake of one. */
enum { V_TABLES = 0 };
TIGON_INLINE vf vf_table32(const float table[32], vf t) { return (void)table, t; }
TIGON_INLINE vf2 vf_load2_bf16_within(const uint16_t *p, int n, float low, float high) {
  (void)low, (void)high;
  return n == 2 * LANES ? vf_load2_bf16(p) : vf_load2_bf16_n(p, n);
}
#endif
#if !defined(TIGON_ISA_AVX512_BF16)
/* Rounding in integers, for which V_NORMAL is nothing special, so that no one need look for the least value. */
enum { V_FLUSHES = 0 };
typedef int v_least;
TIGON_INLINE vf2 vf_round2_bf16(vf2 v, v_values are) { return (vf2){vf_round_bf16(v.a, are), vf_round_bf16(v.b, are)}; }
TIGON_INLINE v_least v_least_none(void) { return 0; }
TIGON_INLINE v_least v_least_bf16(v_least l, const uint16_t *p) { return (void)p, l; }
TIGON_INLINE float v_least_value(v_least l) { return (float)l; }
TIGON_INLINE void vf_store_bf16_both(uint16_t *p, vf a, vf b) { vf_store_bf16(p, a), vf_store_bf16(p + LANES, b); }
TIGON_INLINE void vf_stream_bf16_both(uint16_t *p, vf a, vf b) { vf_stream_bf16(p, a), vf_stream_bf16(p + LANES, b); }
/* Without the instruction nobody makes pairs. */
enum { V_PAIRS = 0 };
TIGON_INLINE v_least v_least_pairs(v_least l, vf pairs) { return (void)pairs, l; }
TIGON_INLINE vf v_load_pairs(const uint16_t *p, int n) { return (void)p, (void)n, vf_zero(); }
TIGON_INLINE vf v_make_pairs(const uint16_t *even, const uint16_t *odd, int n) {
  return (void)even, (void)odd, (void)n, vf_zero();
}
TIGON_INLINE vf2 v_make_pairs2(const uint16_t *even, const uint16_t *odd) {
  return (void)even, (void)odd, (vf2){vf_zero(), vf_zero()};
}
TIGON_INLINE vf v_dot_pairs(vf a, vf b, vf c) { return (void)a, (void)b, c; }
#endif

/* 1.5 * 2^23: n + VF_SHIFTER is rounded to an integer n, |n| < 2^22, which then is in the low bits. */
#define VF_SHIFTER 12582912.0f

/* TIGON_CPU(rms_norm_fwd) is tigon_cpu_avx512_rms_norm_fwd. */
#define TIGON_CPU_PASTE_(isa, name) tigon_cpu_##isa##_##name
#define TIGON_CPU_EXPAND_(isa, name) TIGON_CPU_PASTE_(isa, name)
#define TIGON_CPU(name) TIGON_CPU_EXPAND_(TIGON_ISA, name)

/* Bytes of an element; tigon_dtype_size() would be a call. */
TIGON_INLINE int64_t v_size(tigon_dtype dtype) { return dtype == TIGON_F32 ? 4 : 2; }

/* Elements i .. i + LANES - 1, or the first n of them (0 <= n <= LANES; the other lanes are 0 and never touched). */
TIGON_INLINE vf v_load(const void *data, int64_t i, tigon_dtype dtype) {
  switch (dtype) {
    case TIGON_F16: return vf_load_f16((const uint16_t *)data + i);
    case TIGON_BF16: return vf_load_bf16((const uint16_t *)data + i);
    default: return vf_load((const float *)data + i);
  }
}
TIGON_INLINE vf v_load_n(const void *data, int64_t i, tigon_dtype dtype, int n) {
  switch (dtype) {
    case TIGON_F16: return vf_load_f16_n((const uint16_t *)data + i, n);
    case TIGON_BF16: return vf_load_bf16_n((const uint16_t *)data + i, n);
    default: return vf_load_n((const float *)data + i, n);
  }
}
TIGON_INLINE void v_store(void *data, int64_t i, tigon_dtype dtype, vf a) {
  switch (dtype) {
    case TIGON_F16: vf_store_f16((uint16_t *)data + i, a); break;
    case TIGON_BF16: vf_store_bf16((uint16_t *)data + i, a); break;
    default: vf_store((float *)data + i, a); break;
  }
}
TIGON_INLINE void v_store_n(void *data, int64_t i, tigon_dtype dtype, vf a, int n) {
  switch (dtype) {
    case TIGON_F16: vf_store_f16_n((uint16_t *)data + i, a, n); break;
    case TIGON_BF16: vf_store_bf16_n((uint16_t *)data + i, a, n); break;
    default: vf_store_n((float *)data + i, a, n); break;
  }
}
/* Non-temporal; the address must be aligned to the vector (v_aligned). Ends with one vf_fence() a task. */
TIGON_INLINE void v_stream(void *data, int64_t i, tigon_dtype dtype, vf a) {
  switch (dtype) {
    case TIGON_F16: vf_stream_f16((uint16_t *)data + i, a); break;
    case TIGON_BF16: vf_stream_bf16((uint16_t *)data + i, a); break;
    default: vf_stream((float *)data + i, a); break;
  }
}
/* A store that goes past the caches when `stream`, which is constant in a loop. */
TIGON_INLINE void v_put(void *data, int64_t i, tigon_dtype dtype, vf a, bool stream) {
  if (stream)
    v_stream(data, i, dtype, a);
  else
    v_store(data, i, dtype, a);
}
/* The same of a, then b, aligned to V_LINE. */
TIGON_INLINE void v_put_both(void *data, int64_t i, tigon_dtype dtype, vf a, vf b, bool stream) {
  uint16_t *p = (uint16_t *)data + i;
  if (dtype == TIGON_BF16 && stream)
    vf_stream_bf16_both(p, a, b);
  else if (dtype == TIGON_BF16)
    vf_store_bf16_both(p, a, b);
  else
    v_put(data, i, dtype, a, stream), v_put(data, i + LANES, dtype, b, stream);
}
TIGON_INLINE bool v_aligned(const void *data, tigon_dtype dtype) {
  return (uintptr_t)data % (LANES * (dtype == TIGON_F32 ? 4u : 2u)) == 0;
}

enum { V_LINE = LANES * 4 }; /* bytes that two 16-bit vectors or an f32 one take */

/* Rounded to dtype and back, a number or a quiet NaN. */
TIGON_INLINE vf v_round(vf a, tigon_dtype dtype) {
  switch (dtype) {
    case TIGON_F16: return vf_round_f16(a);
    case TIGON_BF16: return vf_round_bf16(a, V_ANY);
    default: return a;
  }
}
TIGON_INLINE float s_load(const void *data, int64_t i, tigon_dtype dtype) {
  return (float)tigon_load_f64(data, i, dtype);
}
TIGON_INLINE void s_store(void *data, int64_t i, tigon_dtype dtype, float a) {
  switch (dtype) {
    case TIGON_F16: ((uint16_t *)data)[i] = tigon_f16_from_f32(a); break;
    case TIGON_BF16: ((uint16_t *)data)[i] = tigon_bf16_from_f32(a); break;
    default: ((float *)data)[i] = a; break;
  }
}

/* Expands body(dtype, ...) once per dtype, each with a constant. */
#define TIGON_FOR_DTYPE(dtype, body, ...)                    \
  do {                                                       \
    switch (dtype) {                                         \
      case TIGON_F16: body(TIGON_F16, __VA_ARGS__); break;   \
      case TIGON_BF16: body(TIGON_BF16, __VA_ARGS__); break; \
      default: body(TIGON_F32, __VA_ARGS__); break;          \
    }                                                        \
  } while (0)

#endif
