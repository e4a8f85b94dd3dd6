/* A square of LANES vectors, transposed in registers: element l of vector r changes places with element r of vector l. */
#ifndef TIGON_CPU_SIMD_TRANSPOSE_H
#define TIGON_CPU_SIMD_TRANSPOSE_H

#include "cpu/simd.h"

#if defined(TIGON_ISA_AVX512)

TIGON_INLINE vf as_pairs_low(vf a, vf b) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
TIGON_INLINE vf as_pairs_high(vf a, vf b) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}
TIGON_INLINE void vf_transpose(vf r[LANES]) {
  vf t[LANES];
  for (int i = 0; i < LANES; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < LANES; i += 4) {
    r[i] = as_pairs_low(t[i], t[i + 2]);
    r[i + 1] = as_pairs_high(t[i], t[i + 2]);
    r[i + 2] = as_pairs_low(t[i + 1], t[i + 3]);
    r[i + 3] = as_pairs_high(t[i + 1], t[i + 3]);
  }
  /* Quarter k of r[i + c] now is column 4k + c of rows i .. i + 3. */
  for (int c = 0; c < 4; ++c) {
    const vf even0 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0x88), even1 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0x88);
    const vf odd0 = _mm512_shuffle_f32x4(r[c], r[c + 4], 0xdd), odd1 = _mm512_shuffle_f32x4(r[c + 8], r[c + 12], 0xdd);
    t[c] = _mm512_shuffle_f32x4(even0, even1, 0x88);
    t[c + 4] = _mm512_shuffle_f32x4(odd0, odd1, 0x88);
    t[c + 8] = _mm512_shuffle_f32x4(even0, even1, 0xdd);
    t[c + 12] = _mm512_shuffle_f32x4(odd0, odd1, 0xdd);
  }
  for (int i = 0; i < LANES; ++i) r[i] = t[i];
}

#elif defined(TIGON_ISA_AVX2)

TIGON_INLINE void vf_transpose(vf r[LANES]) {
  vf t[LANES];
  for (int i = 0; i < LANES; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < LANES; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  /* Half k of r[i + c] now is column 4k + c of rows i .. i + 3. */
  for (int c = 0; c < 4; ++c) {
    t[c] = _mm256_permute2f128_ps(r[c], r[c + 4], 0x20);
    t[c + 4] = _mm256_permute2f128_ps(r[c], r[c + 4], 0x31);
  }
  for (int i = 0; i < LANES; ++i) r[i] = t[i];
}

#else

TIGON_INLINE void vf_transpose(vf r[LANES]) { (void)r; }

#endif

#endif
