/* AVX-512 F, BW, DQ, VL with F16C: 16 lanes; where there is avx512_bf16, simd_avx512_bf16.h has its rounding. */
#include <immintrin.h>

enum { LANES = 16 };
typedef __m512 vf;
typedef __mmask16 vm;
typedef struct vf2 {
  vf a, b;
} vf2;

TIGON_INLINE __mmask16 first_lanes(int n) { return (__mmask16)((1u << n) - 1); }

TIGON_INLINE vf vf_zero(void) { return _mm512_setzero_ps(); }
TIGON_INLINE vf vf_set(float a) { return _mm512_set1_ps(a); }
TIGON_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
TIGON_INLINE vf vf_load_n(const float *p, int n) { return _mm512_maskz_loadu_ps(first_lanes(n), p); }
TIGON_INLINE void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
TIGON_INLINE void vf_store_n(float *p, vf a, int n) { _mm512_mask_storeu_ps(p, first_lanes(n), a); }
TIGON_INLINE void vf_stream(float *p, vf a) { _mm512_stream_ps(p, a); }

TIGON_INLINE vf bf16_widen(__m256i h) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16)); }
/* Round to nearest even in integers: the hardware's own instruction flushes denormals. */
TIGON_INLINE __m256i bf16_narrow(vf a) {
  const __m512i u = _mm512_castps_si512(a), one = _mm512_set1_epi32(1);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), one);
  const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i quiet = _mm512_or_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(_mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), rounded, quiet));
}
TIGON_INLINE vf vf_load_bf16(const uint16_t *p) { return bf16_widen(_mm256_loadu_si256((const __m256i *)p)); }
TIGON_INLINE vf vf_load_bf16_n(const uint16_t *p, int n) {
  return bf16_widen(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
TIGON_INLINE void vf_store_bf16(uint16_t *p, vf a) { _mm256_storeu_si256((__m256i *)p, bf16_narrow(a)); }
TIGON_INLINE void vf_store_bf16_n(uint16_t *p, vf a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), bf16_narrow(a));
}
TIGON_INLINE void vf_stream_bf16(uint16_t *p, vf a) { _mm256_stream_si256((__m256i *)p, bf16_narrow(a)); }
TIGON_INLINE __m256i f16_narrow(vf a) { return _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TIGON_INLINE vf vf_load_f16(const uint16_t *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
TIGON_INLINE vf vf_load_f16_n(const uint16_t *p, int n) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
TIGON_INLINE void vf_store_f16(uint16_t *p, vf a) { _mm256_storeu_si256((__m256i *)p, f16_narrow(a)); }
TIGON_INLINE void vf_store_f16_n(uint16_t *p, vf a, int n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), f16_narrow(a));
}
TIGON_INLINE void vf_stream_f16(uint16_t *p, vf a) { _mm256_stream_si256((__m256i *)p, f16_narrow(a)); }

TIGON_INLINE vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
TIGON_INLINE vf vf_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
TIGON_INLINE vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
TIGON_INLINE vf vf_div(vf a, vf b) { return _mm512_div_ps(a, b); }
TIGON_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
TIGON_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
/* a * b - p, exact for p = a * b rounded. */
TIGON_INLINE vf vf_product_error(vf a, vf b, vf p) { return _mm512_fmsub_ps(a, b, p); }
TIGON_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
TIGON_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
TIGON_INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
TIGON_INLINE vf vf_abs(vf a) { return _mm512_abs_ps(a); }
TIGON_INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* 2^n for integer n in [-126, 127]. */
TIGON_INLINE vf vf_pow2(vf n) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127)), 23));
}
/* a * 2^n for t = n + VF_SHIFTER: n is added to a's exponent, so a and the result must be normal numbers. */
TIGON_INLINE vf vf_add_exponent(vf a, vf t) {
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}
/* a = *m * 2^n for a normal a > 0; n is returned, 2/3 <= *m < 4/3. */
TIGON_INLINE vf vf_take_exponent(vf a, vf *m) {
  const __m512i bits = _mm512_castps_si512(a),
                n = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_set1_epi32(0x3f2aaaab)), 23);
  *m = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(n, 23)));
  return _mm512_cvtepi32_ps(n);
}
/* a - floor(a); 0 for -Inf. */
TIGON_INLINE vf vf_fraction(vf a) { return _mm512_reduce_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
/* a * 2^floor(b), rounded once where it is denormal, for any b <= 127. */
TIGON_INLINE vf vf_scale_floor(vf a, vf b) { return _mm512_scalef_ps(a, b); }
/* 1 / a within 2^-23 of it for 1 <= a <= 2^126: an estimate of 14 bits and a Newton step. */
TIGON_INLINE vf vf_reciprocal(vf a) {
  const vf y = _mm512_rcp14_ps(a);
  return vf_fma(y, vf_fnma(a, y, _mm512_set1_ps(1.0f)), y);
}
/* a / b within 2^-22 of it, b as there: a * y waits for nothing but the estimate. */
TIGON_INLINE vf vf_quotient(vf a, vf b) {
  const vf y = _mm512_rcp14_ps(b);
  return vf_mul(vf_mul(a, y), vf_fnma(b, y, _mm512_set1_ps(2.0f)));
}
/* table[the lowest 5 bits of t]. */
enum { V_TABLES = 1 };
TIGON_INLINE vf vf_table32(const float table[32], vf t) {
  return _mm512_permutex2var_ps(_mm512_load_ps(table), _mm512_castps_si512(t), _mm512_load_ps(table + 16));
}
TIGON_INLINE vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
TIGON_INLINE vm vf_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
TIGON_INLINE vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
/* a > b, or one of them is a NaN. */
TIGON_INLINE vm vf_above(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_NLE_UQ); }
TIGON_INLINE vm vf_nan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
TIGON_INLINE bool vm_any(vm m) { return m != 0; }
TIGON_INLINE int vm_count(vm m) { return __builtin_popcount(m); }
TIGON_INLINE vf vf_select(vm m, vf a, vf b) { return _mm512_mask_blend_ps(m, b, a); }
/* The lanes of m one after the other, into a place for LANES; how many they are. */
TIGON_INLINE int vf_pack(float *p, vm m, vf a) {
  _mm512_storeu_ps(p, _mm512_maskz_compress_ps(m, a));
  return __builtin_popcount(m);
}
TIGON_INLINE float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
TIGON_INLINE float vf_max_across(vf a) { return _mm512_reduce_max_ps(a); }
TIGON_INLINE vf vf_round_f16(vf a) { return _mm512_cvtph_ps(f16_narrow(a)); }

/* 32 elements: the even ones in a, the odd ones in b. */
TIGON_INLINE vf2 pair_widen(__m512i h) {
  return (vf2){_mm512_castsi512_ps(_mm512_slli_epi32(h, 16)),
               _mm512_castsi512_ps(_mm512_and_si512(h, _mm512_set1_epi32((int)0xffff0000u)))};
}
/* Rounded in the upper half. A quiet NaN is cut off and stays one. */
TIGON_INLINE __m512i pair_rounded(vf a, v_values are) {
  const __m512i u = _mm512_castps_si512(a);
  const __mmask16 number = are != V_ANY ? 0xffff : _mm512_cmp_ps_mask(a, a, _CMP_ORD_Q);
  const __mmask16 odd = _mm512_mask_test_epi32_mask(number, u, _mm512_set1_epi32(0x10000));
  const __m512i near = _mm512_mask_add_epi32(u, number, u, _mm512_set1_epi32(0x7fff));
  return _mm512_mask_add_epi32(near, odd, near, _mm512_set1_epi32(1));
}
/* Rounds a quiet NaN or a number. */
TIGON_INLINE vf vf_round_bf16(vf a, v_values are) {
  return _mm512_castsi512_ps(_mm512_and_si512(pair_rounded(a, are), _mm512_set1_epi32((int)0xffff0000)));
}
TIGON_INLINE __m512i pair_narrow_exact(vf2 v, v_values are) {
  return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(pair_rounded(v.a, are), 16), pair_rounded(v.b, are));
}
#if defined(TIGON_ISA_AVX512_BF16)
#include "cpu/simd_avx512_bf16.h"
#else
TIGON_INLINE __m512i pair_narrow(vf2 v, v_values are) { return pair_narrow_exact(v, are); }
#endif
TIGON_INLINE vf2 vf_load2_bf16(const uint16_t *p) { return pair_widen(_mm512_loadu_si512(p)); }
TIGON_INLINE vf2 vf_load2_bf16_n(const uint16_t *p, int n) {
  return pair_widen(_mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << n) - 1), p));
}
/* The first n, cut off at low < 0 and high > 0, NaNs too: signed integers order the positive ones and unsigned the others. */
TIGON_INLINE vf2 vf_load2_bf16_within(const uint16_t *p, int n, float low, float high) {
  const __m512i h = n == 32 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << n) - 1), p);
  const __m512i most = _mm512_set1_epi16((short)(tigon_bits(high) >> 16)),
                least = _mm512_set1_epi16((short)(tigon_bits(low) >> 16));
  return pair_widen(_mm512_min_epu16(_mm512_min_epi16(h, most), least));
}
TIGON_INLINE void vf_store2_bf16(uint16_t *p, vf2 v, v_values are) { _mm512_storeu_si512(p, pair_narrow(v, are)); }
TIGON_INLINE void vf_store2_bf16_n(uint16_t *p, vf2 v, int n) {
  _mm512_mask_storeu_epi16(p, (__mmask32)((UINT64_C(1) << n) - 1), pair_narrow(v, V_ANY));
}
TIGON_INLINE void vf_stream2_bf16(uint16_t *p, vf2 v, v_values are) {
  _mm512_stream_si512((__m512i *)(void *)p, pair_narrow(v, are));
}
/* LANES sums in f64. */
typedef struct vd {
  __m512d low, high;
} vd;
TIGON_INLINE vd vd_zero(void) { return (vd){_mm512_setzero_pd(), _mm512_setzero_pd()}; }
/* The square of an f32 is exact in f64. */
TIGON_INLINE vd vd_add_square(vd s, vf a) {
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
  return (vd){_mm512_fmadd_pd(low, low, s.low), _mm512_fmadd_pd(high, high, s.high)};
}
TIGON_INLINE vd vd_add(vd s, vf a) {
  const __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(a)), high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1));
  return (vd){_mm512_add_pd(s.low, low), _mm512_add_pd(s.high, high)};
}
TIGON_INLINE double vd_sum(vd s) { return _mm512_reduce_add_pd(_mm512_add_pd(s.low, s.high)); }

/* Elements 0 .. 31 in a, b to even and odd ones, and back. */
TIGON_INLINE vf2 vf_split(vf2 v) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  return (vf2){_mm512_permutex2var_ps(v.a, even, v.b), _mm512_permutex2var_ps(v.a, odd, v.b)};
}
TIGON_INLINE vf2 vf_zip(vf2 v) {
  const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
  return (vf2){_mm512_permutex2var_ps(v.a, low, v.b), _mm512_permutex2var_ps(v.a, high, v.b)};
}
TIGON_INLINE void vf_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
TIGON_INLINE void vf_prefetch_l2(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }
TIGON_INLINE void vf_fence(void) { _mm_sfence(); }
