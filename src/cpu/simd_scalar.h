/* The vector type of the portable variant: one lane. */
#include <math.h>

#include "core/half.h"

enum { LANES = 1 };
typedef float vf;
typedef bool vm;
typedef struct vf2 {
  vf a, b;
} vf2;

TIGON_INLINE vf vf_zero(void) { return 0; }
TIGON_INLINE vf vf_set(float a) { return a; }
TIGON_INLINE vf vf_load(const float *p) { return *p; }
TIGON_INLINE vf vf_load_n(const float *p, int n) { return n ? *p : 0; }
TIGON_INLINE void vf_store(float *p, vf a) { *p = a; }
TIGON_INLINE void vf_store_n(float *p, vf a, int n) {
  if (n) *p = a;
}
TIGON_INLINE void vf_stream(float *p, vf a) { *p = a; }
TIGON_INLINE vf vf_load_bf16(const uint16_t *p) { return tigon_f32_from_bf16(*p); }
TIGON_INLINE vf vf_load_bf16_n(const uint16_t *p, int n) { return n ? tigon_f32_from_bf16(*p) : 0; }
TIGON_INLINE void vf_store_bf16(uint16_t *p, vf a) { *p = tigon_bf16_from_f32(a); }
TIGON_INLINE void vf_store_bf16_n(uint16_t *p, vf a, int n) {
  if (n) *p = tigon_bf16_from_f32(a);
}
TIGON_INLINE void vf_stream_bf16(uint16_t *p, vf a) { *p = tigon_bf16_from_f32(a); }
TIGON_INLINE vf vf_load_f16(const uint16_t *p) { return tigon_f32_from_f16(*p); }
TIGON_INLINE vf vf_load_f16_n(const uint16_t *p, int n) { return n ? tigon_f32_from_f16(*p) : 0; }
TIGON_INLINE void vf_store_f16(uint16_t *p, vf a) { *p = tigon_f16_from_f32(a); }
TIGON_INLINE void vf_store_f16_n(uint16_t *p, vf a, int n) {
  if (n) *p = tigon_f16_from_f32(a);
}
TIGON_INLINE void vf_stream_f16(uint16_t *p, vf a) { *p = tigon_f16_from_f32(a); }

TIGON_INLINE vf vf_add(vf a, vf b) { return a + b; }
TIGON_INLINE vf vf_sub(vf a, vf b) { return a - b; }
TIGON_INLINE vf vf_mul(vf a, vf b) { return a * b; }
TIGON_INLINE vf vf_div(vf a, vf b) { return a / b; }
TIGON_INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
TIGON_INLINE vf vf_fnma(vf a, vf b, vf c) { return c - a * b; }
/* a * b - p, exact for p = a * b rounded. */
TIGON_INLINE vf vf_product_error(vf a, vf b, vf p) { return (float)((double)a * (double)b - (double)p); }
TIGON_INLINE vf vf_min(vf a, vf b) { return a < b ? a : b; }
TIGON_INLINE vf vf_max(vf a, vf b) { return a > b ? a : b; }
TIGON_INLINE vf vf_sqrt(vf a) { return sqrtf(a); }
TIGON_INLINE vf vf_abs(vf a) { return fabsf(a); }
TIGON_INLINE vf vf_round(vf a) { return rintf(a); }
/* 2^n for integer n in [-126, 127]. */
TIGON_INLINE vf vf_pow2(vf n) { return tigon_from_bits((uint32_t)((int32_t)n + 127) << 23); }
/* a * 2^n for t = n + VF_SHIFTER: n is added to a's exponent, so a and the result must be normal numbers. */
TIGON_INLINE vf vf_add_exponent(vf a, vf t) { return tigon_from_bits(tigon_bits(a) + (tigon_bits(t) << 23)); }
/* a = *m * 2^n for a normal a > 0; n is returned, 2/3 <= *m < 4/3. Other numbers wrap, as in the other variants. */
TIGON_INLINE vf vf_take_exponent(vf a, vf *m) {
  const int32_t n = (int32_t)(tigon_bits(a) - 0x3f2aaaabu) >> 23;
  *m = tigon_from_bits(tigon_bits(a) - ((uint32_t)n << 23));
  return (float)n;
}
/* a - floor(a); 0 below -250. */
TIGON_INLINE vf vf_fraction(vf a) { return a < -250.0f ? 0 : a - floorf(a); }
/* a * 2^floor(b), rounded once where it is denormal, for any b <= 127. */
TIGON_INLINE vf vf_scale_floor(vf a, vf b) {
  const int32_t n = b > -250.0f ? (int32_t)floorf(b) : -250, half = n >> 1;
  a *= tigon_from_bits((uint32_t)(half + 127) << 23);
  return a * tigon_from_bits((uint32_t)(n - half + 127) << 23);
}
/* 1 / a. */
TIGON_INLINE vf vf_reciprocal(vf a) { return 1.0f / a; }
TIGON_INLINE vf vf_quotient(vf a, vf b) { return vf_div(a, b); }
TIGON_INLINE vm vf_lt(vf a, vf b) { return a < b; }
TIGON_INLINE vm vf_le(vf a, vf b) { return a <= b; }
TIGON_INLINE vm vf_eq(vf a, vf b) { return a == b; }
/* a > b, or one of them is a NaN. */
TIGON_INLINE vm vf_above(vf a, vf b) { return !(a <= b); }
TIGON_INLINE vm vf_nan(vf a) { return a != a; }
TIGON_INLINE bool vm_any(vm m) { return m; }
TIGON_INLINE int vm_count(vm m) { return m; }
TIGON_INLINE vf vf_select(vm m, vf a, vf b) { return m ? a : b; }
/* The lanes of m one after the other, into a place for LANES; how many they are. */
TIGON_INLINE int vf_pack(float *p, vm m, vf a) {
  *p = a;
  return m;
}
TIGON_INLINE float vf_sum(vf a) { return a; }
TIGON_INLINE float vf_max_across(vf a) { return a; }
TIGON_INLINE vf vf_round_bf16(vf a, v_values are) {
  (void)are;
  return tigon_round_f32(a, TIGON_BF16);
}
TIGON_INLINE vf vf_round_f16(vf a) { return tigon_round_f32(a, TIGON_F16); }

/* 2 elements. */
TIGON_INLINE vf2 vf_load2_bf16(const uint16_t *p) { return (vf2){vf_load_bf16(p), vf_load_bf16(p + 1)}; }
TIGON_INLINE vf2 vf_load2_bf16_n(const uint16_t *p, int n) {
  return (vf2){vf_load_bf16_n(p, n > 0), vf_load_bf16_n(p + 1, n > 1)};
}
TIGON_INLINE void vf_store2_bf16(uint16_t *p, vf2 v, v_values are) {
  (void)are;
  vf_store_bf16(p, v.a);
  vf_store_bf16(p + 1, v.b);
}
TIGON_INLINE void vf_store2_bf16_n(uint16_t *p, vf2 v, int n) {
  vf_store_bf16_n(p, v.a, n > 0);
  vf_store_bf16_n(p + 1, v.b, n > 1);
}
TIGON_INLINE void vf_stream2_bf16(uint16_t *p, vf2 v, v_values are) { vf_store2_bf16(p, v, are); }
/* LANES sums in f64. */
typedef double vd;
TIGON_INLINE vd vd_zero(void) { return 0; }
/* The square of an f32 is exact in f64. */
TIGON_INLINE vd vd_add_square(vd s, vf a) { return s + (double)a * (double)a; }
TIGON_INLINE vd vd_add(vd s, vf a) { return s + (double)a; }
TIGON_INLINE double vd_sum(vd s) { return s; }

/* Elements 0, 1 in a, b to even and odd ones, and back. */
TIGON_INLINE vf2 vf_split(vf2 v) { return v; }
TIGON_INLINE vf2 vf_zip(vf2 v) { return v; }
TIGON_INLINE void vf_prefetch(const void *p) { __builtin_prefetch(p); }
TIGON_INLINE void vf_prefetch_l2(const void *p) { __builtin_prefetch(p, 0, 2); }
TIGON_INLINE void vf_fence(void) {}
