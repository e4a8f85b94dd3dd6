/* The vector type of the portable variant: one lane. */
#include <math.h>

#include "core/half.h"

enum { LANES = 1 };
typedef float vf;
typedef bool vm;

static inline vf vf_zero(void) { return 0; }
static inline vf vf_set(float a) { return a; }
static inline vf vf_load(const float *p) { return *p; }
static inline vf vf_load_n(const float *p, int n) { return n ? *p : 0; }
static inline void vf_store(float *p, vf a) { *p = a; }
static inline void vf_store_n(float *p, vf a, int n) {
  if (n) *p = a;
}
static inline void vf_stream(float *p, vf a) { *p = a; }
static inline vf vf_load_bf16(const uint16_t *p) { return tigon_f32_from_bf16(*p); }
static inline vf vf_load_bf16_n(const uint16_t *p, int n) { return n ? tigon_f32_from_bf16(*p) : 0; }
static inline void vf_store_bf16(uint16_t *p, vf a) { *p = tigon_bf16_from_f32(a); }
static inline void vf_store_bf16_n(uint16_t *p, vf a, int n) {
  if (n) *p = tigon_bf16_from_f32(a);
}
static inline void vf_stream_bf16(uint16_t *p, vf a) { *p = tigon_bf16_from_f32(a); }
static inline vf vf_load_f16(const uint16_t *p) { return tigon_f32_from_f16(*p); }
static inline vf vf_load_f16_n(const uint16_t *p, int n) { return n ? tigon_f32_from_f16(*p) : 0; }
static inline void vf_store_f16(uint16_t *p, vf a) { *p = tigon_f16_from_f32(a); }
static inline void vf_store_f16_n(uint16_t *p, vf a, int n) {
  if (n) *p = tigon_f16_from_f32(a);
}
static inline void vf_stream_f16(uint16_t *p, vf a) { *p = tigon_f16_from_f32(a); }

static inline vf vf_add(vf a, vf b) { return a + b; }
static inline vf vf_sub(vf a, vf b) { return a - b; }
static inline vf vf_mul(vf a, vf b) { return a * b; }
static inline vf vf_div(vf a, vf b) { return a / b; }
static inline vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
static inline vf vf_fnma(vf a, vf b, vf c) { return c - a * b; }
static inline vf vf_min(vf a, vf b) { return a < b ? a : b; }
static inline vf vf_max(vf a, vf b) { return a > b ? a : b; }
static inline vf vf_sqrt(vf a) { return sqrtf(a); }
static inline vf vf_abs(vf a) { return fabsf(a); }
static inline vf vf_round(vf a) { return rintf(a); }
/* 2^n for integer n in [-126, 127]. */
static inline vf vf_pow2(vf n) { return tigon_from_bits((uint32_t)((int32_t)n + 127) << 23); }
static inline vm vf_lt(vf a, vf b) { return a < b; }
static inline vm vf_le(vf a, vf b) { return a <= b; }
static inline vm vf_eq(vf a, vf b) { return a == b; }
static inline vm vf_nan(vf a) { return a != a; }
static inline vf vf_select(vm m, vf a, vf b) { return m ? a : b; }
static inline float vf_sum(vf a) { return a; }
static inline float vf_max_across(vf a) { return a; }
static inline vf vf_round_bf16(vf a) { return tigon_round_f32(a, TIGON_BF16); }
static inline vf vf_round_f16(vf a) { return tigon_round_f32(a, TIGON_F16); }
static inline void vf_prefetch(const void *p) { __builtin_prefetch(p); }
static inline void vf_fence(void) {}
