/* Rounding to bf16 by the instruction for it, which takes a denormal for 0 and is as good as integers otherwise. */

enum { V_FLUSHES = 1 };

TIGON_INLINE __m512i pair_narrow_normal(vf2 v) {
  static const uint16_t even_odd[32] __attribute__((aligned(64))) = {
      0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
      8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31,
  };
  return _mm512_permutexvar_epi16(_mm512_load_si512(even_odd), (__m512i)_mm512_cvtne2ps_pbh(v.b, v.a));
}
TIGON_INLINE bool any_denormal(vf2 v) {
  return (_mm512_fpclass_ps_mask(v.a, 0x20) | _mm512_fpclass_ps_mask(v.b, 0x20)) != 0;
}
/* What was flushed is 0 in the result. */
TIGON_INLINE __m512i pair_narrow(vf2 v, v_values are) {
  if (are < V_RARE) return pair_narrow_exact(v, are);
  const __m512i h = pair_narrow_normal(v);
  if (are == V_NORMAL) return h;
  const bool zero = _mm512_testn_epi16_mask(h, _mm512_set1_epi16(0x7fff)) != 0;
  return __builtin_expect(zero, 0) && any_denormal(v) ? pair_narrow_exact(v, are) : h;
}
TIGON_INLINE vf2 vf_round2_bf16(vf2 v, v_values are) {
  if (are == V_NORMAL) return pair_widen(pair_narrow_normal(v));
  return (vf2){vf_round_bf16(v.a, are), vf_round_bf16(v.b, are)};
}

/* Any 32 elements in their natural order. */
TIGON_INLINE __m512i natural_narrow(vf a, vf b) {
  const __m512i h = (__m512i)_mm512_cvtne2ps_pbh(b, a);
  const bool zero = _mm512_testn_epi16_mask(h, _mm512_set1_epi16(0x7fff)) != 0;
  if (!__builtin_expect(zero, 0) || !any_denormal((vf2){a, b})) return h;
  return _mm512_inserti64x4(_mm512_castsi256_si512(bf16_narrow(a)), bf16_narrow(b), 1);
}
TIGON_INLINE void vf_store_bf16_both(uint16_t *p, vf a, vf b) { _mm512_storeu_si512(p, natural_narrow(a, b)); }
TIGON_INLINE void vf_stream_bf16_both(uint16_t *p, vf a, vf b) {
  _mm512_stream_si512((__m512i *)(void *)p, natural_narrow(a, b));
}

/* The least magnitude that is not 0 among bf16, less 1, in the upper 15 bits of 16. */
typedef __m512i v_least;
TIGON_INLINE v_least v_least_none(void) { return _mm512_set1_epi16(-1); }
TIGON_INLINE v_least v_least_pairs(v_least l, vf pairs) {
  const __m512i h = _mm512_castps_si512(pairs);
  return _mm512_min_epu16(l, _mm512_add_epi16(_mm512_add_epi16(h, h), _mm512_set1_epi16(-1)));
}
TIGON_INLINE v_least v_least_bf16(v_least l, const uint16_t *p) {
  return v_least_pairs(l, _mm512_castsi512_ps(_mm512_loadu_si512(p)));
}
/* -0 if there was none. */
TIGON_INLINE float v_least_value(v_least l) {
  const __m256i h = _mm256_min_epu16(_mm512_castsi512_si256(l), _mm512_extracti64x4_epi64(l, 1));
  const __m128i q = _mm_minpos_epu16(_mm_min_epu16(_mm256_castsi256_si128(h), _mm256_extracti128_si256(h, 1)));
  return _mm512_cvtss_f32(_mm512_castsi512_ps(_mm512_set1_epi32((int)(((unsigned)_mm_extract_epi16(q, 0) + 1) << 15))));
}

/* Pairs of bf16, one in 32 bits: the first n of 32 elements, or element i of `even` with element i of `odd` (NULL: with 0) for
 * i < n. The rest is 0 and never read. */
enum { V_PAIRS = 1 };
static const uint16_t v_in_turns[64] __attribute__((aligned(64))) = {
    0,  32, 1,  33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39, 8,  40, 9,  41, 10, 42,
    11, 43, 12, 44, 13, 45, 14, 46, 15, 47, 16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53,
    22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63,
};
TIGON_INLINE vf v_load_pairs(const uint16_t *p, int n) {
  if (n == 32) return _mm512_castsi512_ps(_mm512_loadu_si512(p));
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi16((__mmask32)((UINT64_C(1) << n) - 1), p));
}
TIGON_INLINE vf v_make_pairs(const uint16_t *even, const uint16_t *odd, int n) {
  const __m512i low = _mm512_zextsi256_si512(_mm256_maskz_loadu_epi16(first_lanes(n), even));
  const __m512i high =
      odd ? _mm512_zextsi256_si512(_mm256_maskz_loadu_epi16(first_lanes(n), odd)) : _mm512_setzero_si512();
  return _mm512_castsi512_ps(_mm512_permutex2var_epi16(low, _mm512_load_si512(v_in_turns), high));
}
/* The same of all 32 elements. */
TIGON_INLINE vf2 v_make_pairs2(const uint16_t *even, const uint16_t *odd) {
  const __m512i low = _mm512_loadu_si512(even), high = _mm512_loadu_si512(odd);
  return (vf2){_mm512_castsi512_ps(_mm512_permutex2var_epi16(low, _mm512_load_si512(v_in_turns), high)),
               _mm512_castsi512_ps(_mm512_permutex2var_epi16(low, _mm512_load_si512(v_in_turns + 32), high))};
}
/* c + the products of both elements, each sum rounded to nearest; what is denormal on the way is 0. */
TIGON_INLINE vf v_dot_pairs(vf a, vf b, vf c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }
