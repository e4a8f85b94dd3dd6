/* AVX2 with FMA and F16C: 8 lanes. */
#include <immintrin.h>
#include <string.h>

enum { LANES = 8 };
typedef __m256 vf;
typedef __m256 vm;
typedef struct vf2 {
  vf a, b;
} vf2;

TIGON_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
TIGON_INLINE __m128i load_u16_n(const uint16_t *p, int n) {
  uint16_t lanes[8] = {0};
  /* The analyzer takes a pointer that a caller compared with NULL for one that may be NULL here. */
  memcpy(lanes, p, (size_t)n * sizeof *p); // NOLINT(clang-analyzer-core.NonNullParamChecker)
  return _mm_loadu_si128((const __m128i *)lanes);
}
TIGON_INLINE void store_u16_n(uint16_t *p, __m128i a, int n) {
  uint16_t lanes[8];
  _mm_storeu_si128((__m128i *)lanes, a);
  memcpy(p, lanes, (size_t)n * sizeof *p);
}

TIGON_INLINE vf vf_zero(void) { return _mm256_setzero_ps(); }
TIGON_INLINE vf vf_set(float a) { return _mm256_set1_ps(a); }
TIGON_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
TIGON_INLINE vf vf_load_n(const float *p, int n) { return _mm256_maskload_ps(p, first_lanes(n)); }
TIGON_INLINE void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
TIGON_INLINE void vf_store_n(float *p, vf a, int n) { _mm256_maskstore_ps(p, first_lanes(n), a); }
TIGON_INLINE void vf_stream(float *p, vf a) { _mm256_stream_ps(p, a); }

TIGON_INLINE vf bf16_widen(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
TIGON_INLINE __m128i bf16_narrow(vf a) {
  const __m256i u = _mm256_castps_si256(a), high = _mm256_srli_epi32(u, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  const __m256i h = _mm256_blendv_epi8(rounded, quiet, nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1));
}
TIGON_INLINE vf vf_load_bf16(const uint16_t *p) { return bf16_widen(_mm_loadu_si128((const __m128i *)p)); }
TIGON_INLINE vf vf_load_bf16_n(const uint16_t *p, int n) { return bf16_widen(load_u16_n(p, n)); }
TIGON_INLINE void vf_store_bf16(uint16_t *p, vf a) { _mm_storeu_si128((__m128i *)p, bf16_narrow(a)); }
TIGON_INLINE void vf_store_bf16_n(uint16_t *p, vf a, int n) { store_u16_n(p, bf16_narrow(a), n); }
TIGON_INLINE void vf_stream_bf16(uint16_t *p, vf a) { _mm_stream_si128((__m128i *)p, bf16_narrow(a)); }
TIGON_INLINE __m128i f16_narrow(vf a) { return _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
TIGON_INLINE vf vf_load_f16(const uint16_t *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
TIGON_INLINE vf vf_load_f16_n(const uint16_t *p, int n) { return _mm256_cvtph_ps(load_u16_n(p, n)); }
TIGON_INLINE void vf_store_f16(uint16_t *p, vf a) { _mm_storeu_si128((__m128i *)p, f16_narrow(a)); }
TIGON_INLINE void vf_store_f16_n(uint16_t *p, vf a, int n) { store_u16_n(p, f16_narrow(a), n); }
TIGON_INLINE void vf_stream_f16(uint16_t *p, vf a) { _mm_stream_si128((__m128i *)p, f16_narrow(a)); }

TIGON_INLINE vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
TIGON_INLINE vf vf_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
TIGON_INLINE vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
TIGON_INLINE vf vf_div(vf a, vf b) { return _mm256_div_ps(a, b); }
TIGON_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
TIGON_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
/* a * b - p, exact for p = a * b rounded. */
TIGON_INLINE vf vf_product_error(vf a, vf b, vf p) { return _mm256_fmsub_ps(a, b, p); }
TIGON_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
TIGON_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
TIGON_INLINE vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
TIGON_INLINE vf vf_abs(vf a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
TIGON_INLINE vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
/* 2^n for integer n in [-126, 127]. */
TIGON_INLINE vf vf_pow2(vf n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
/* a * 2^n for t = n + VF_SHIFTER: n is added to a's exponent, so a and the result must be normal numbers. */
TIGON_INLINE vf vf_add_exponent(vf a, vf t) {
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(t), 23)));
}
/* a = *m * 2^n for a normal a > 0; n is returned, 2/3 <= *m < 4/3. */
TIGON_INLINE vf vf_take_exponent(vf a, vf *m) {
  const __m256i bits = _mm256_castps_si256(a),
                n = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_set1_epi32(0x3f2aaaab)), 23);
  *m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(n, 23)));
  return _mm256_cvtepi32_ps(n);
}
/* a - floor(a); 0 below -250. */
TIGON_INLINE vf vf_fraction(vf a) {
  const vf b = _mm256_max_ps(_mm256_set1_ps(-250.0f), a);
  return _mm256_sub_ps(b, _mm256_floor_ps(b));
}
/* a * 2^floor(b), rounded once where it is denormal, for any b <= 127: two steps, each a power that is a normal number. */
TIGON_INLINE vf vf_scale_floor(vf a, vf b) {
  const __m256i n = _mm256_cvtps_epi32(_mm256_floor_ps(_mm256_max_ps(_mm256_set1_ps(-250.0f), b)));
  const __m256i half = _mm256_srai_epi32(n, 1), bias = _mm256_set1_epi32(127);
  const __m256i rest = _mm256_sub_epi32(n, half);
  a = _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
  return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}
/* 1 / a. */
TIGON_INLINE vf vf_reciprocal(vf a) { return _mm256_div_ps(_mm256_set1_ps(1.0f), a); }
TIGON_INLINE vf vf_quotient(vf a, vf b) { return vf_div(a, b); }
TIGON_INLINE vm vf_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
TIGON_INLINE vm vf_le(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
TIGON_INLINE vm vf_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
/* a > b, or one of them is a NaN. */
TIGON_INLINE vm vf_above(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_NLE_UQ); }
TIGON_INLINE vm vf_nan(vf a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
TIGON_INLINE bool vm_any(vm m) { return _mm256_movemask_ps(m) != 0; }
TIGON_INLINE int vm_count(vm m) { return __builtin_popcount((unsigned)_mm256_movemask_ps(m)); }
TIGON_INLINE vf vf_select(vm m, vf a, vf b) { return _mm256_blendv_ps(b, a, m); }
/* The lanes of m one after the other, into a place for LANES; how many they are. */
TIGON_INLINE int vf_pack(float *p, vm m, vf a) {
  const unsigned lanes = (unsigned)_mm256_movemask_ps(m);
  if (!lanes) return 0;
  const uint64_t bytes = _pdep_u64(lanes, UINT64_C(0x0101010101010101)) * 0xff;
  const uint64_t order = _pext_u64(UINT64_C(0x0706050403020100), bytes);
  _mm256_storeu_ps(p, _mm256_permutevar8x32_ps(a, _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((int64_t)order))));
  return __builtin_popcount(lanes);
}
TIGON_INLINE float vf_sum(vf a) {
  __m128 h = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  h = _mm_add_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_add_ss(h, _mm_movehdup_ps(h)));
}
TIGON_INLINE float vf_max_across(vf a) {
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}
TIGON_INLINE vf vf_round_f16(vf a) { return _mm256_cvtph_ps(f16_narrow(a)); }

/* 16 elements: the even ones in a, the odd ones in b. */
TIGON_INLINE vf2 pair_widen(__m256i h) {
  return (vf2){_mm256_castsi256_ps(_mm256_slli_epi32(h, 16)),
               _mm256_castsi256_ps(_mm256_and_si256(h, _mm256_set1_epi32((int)0xffff0000u)))};
}
/* Rounded in the upper half. A quiet NaN is cut off and stays one. */
TIGON_INLINE __m256i pair_rounded(vf a, v_values are) {
  const __m256i u = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  const __m256i more = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  if (are != V_ANY) return _mm256_add_epi32(u, more);
  return _mm256_add_epi32(u, _mm256_andnot_si256(_mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)), more));
}
/* Rounds a quiet NaN or a number. */
TIGON_INLINE vf vf_round_bf16(vf a, v_values are) {
  return _mm256_castsi256_ps(_mm256_and_si256(pair_rounded(a, are), _mm256_set1_epi32((int)0xffff0000)));
}
TIGON_INLINE __m256i pair_narrow(vf2 v, v_values are) {
  return _mm256_blend_epi16(_mm256_srli_epi32(pair_rounded(v.a, are), 16), pair_rounded(v.b, are), 0xaa);
}
TIGON_INLINE vf2 vf_load2_bf16(const uint16_t *p) {
  return pair_widen(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TIGON_INLINE vf2 vf_load2_bf16_n(const uint16_t *p, int n) {
  uint16_t lanes[16] = {0};
  memcpy(lanes, p, (size_t)n * sizeof *p); // NOLINT(clang-analyzer-core.NonNullParamChecker): as load_u16_n
  return vf_load2_bf16(lanes);
}
TIGON_INLINE void vf_store2_bf16(uint16_t *p, vf2 v, v_values are) {
  _mm256_storeu_si256((__m256i *)(void *)p, pair_narrow(v, are));
}
TIGON_INLINE void vf_store2_bf16_n(uint16_t *p, vf2 v, int n) {
  uint16_t lanes[16];
  vf_store2_bf16(lanes, v, false);
  memcpy(p, lanes, (size_t)n * sizeof *p); // NOLINT(clang-analyzer-core.NonNullParamChecker): as load_u16_n
}
TIGON_INLINE void vf_stream2_bf16(uint16_t *p, vf2 v, v_values are) {
  _mm256_stream_si256((__m256i *)(void *)p, pair_narrow(v, are));
}
/* LANES sums in f64. */
typedef struct vd {
  __m256d low, high;
} vd;
TIGON_INLINE vd vd_zero(void) { return (vd){_mm256_setzero_pd(), _mm256_setzero_pd()}; }
/* The square of an f32 is exact in f64. */
TIGON_INLINE vd vd_add_square(vd s, vf a) {
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a)), high = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
  return (vd){_mm256_fmadd_pd(low, low, s.low), _mm256_fmadd_pd(high, high, s.high)};
}
TIGON_INLINE vd vd_add(vd s, vf a) {
  const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(a)), high = _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1));
  return (vd){_mm256_add_pd(s.low, low), _mm256_add_pd(s.high, high)};
}
TIGON_INLINE double vd_sum(vd s) {
  const __m256d sum = _mm256_add_pd(s.low, s.high);
  const __m128d half = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
  return _mm_cvtsd_f64(_mm_add_sd(half, _mm_unpackhi_pd(half, half)));
}

/* Elements 0 .. 15 in a, b to even and odd ones, and back. */
TIGON_INLINE vf in_quarters(vf a) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8)); }
TIGON_INLINE vf2 vf_split(vf2 v) {
  return (vf2){in_quarters(_mm256_shuffle_ps(v.a, v.b, 0x88)), in_quarters(_mm256_shuffle_ps(v.a, v.b, 0xdd))};
}
TIGON_INLINE vf2 vf_zip(vf2 v) {
  const vf low = _mm256_unpacklo_ps(v.a, v.b), high = _mm256_unpackhi_ps(v.a, v.b);
  return (vf2){_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
TIGON_INLINE void vf_prefetch(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
TIGON_INLINE void vf_prefetch_l2(const void *p) { _mm_prefetch((const char *)p, _MM_HINT_T1); }
TIGON_INLINE void vf_fence(void) { _mm_sfence(); }
