/* A LANES x LANES block of floats turned round in registers: lane i of out[j] is lane j of in[i]. */
#ifndef TIGON_CPU_TRANSPOSE_H
#define TIGON_CPU_TRANSPOSE_H

#include "cpu/simd.h"

#if defined(TIGON_ISA_AVX512)
TIGON_INLINE void vf_transpose(vf r[LANES]) {
  vf t[LANES];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) { /* 4 x 4 blocks are done: r[i + j] has column j of each 128-bit group */
    r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int j = 0; j < 4; ++j) { /* t[j + 8 * half]: groups 0 and 2; t[j + 4 + 8 * half]: groups 1 and 3 */
    t[j] = _mm512_shuffle_f32x4(r[j], r[j + 4], 0x88);
    t[j + 4] = _mm512_shuffle_f32x4(r[j], r[j + 4], 0xdd);
    t[j + 8] = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0x88);
    t[j + 12] = _mm512_shuffle_f32x4(r[j + 8], r[j + 12], 0xdd);
  }
  for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0xdd);
  }
}
#elif defined(TIGON_ISA_AVX2)
TIGON_INLINE void vf_transpose(vf r[LANES]) {
  vf t[LANES];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) { /* 4 x 4 blocks are done: r[i + j] has column j of each 128-bit half */
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x20);
    t[j + 4] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x31);
  }
  for (int j = 0; j < 8; ++j) r[j] = t[j];
}
#else
TIGON_INLINE void vf_transpose(vf r[LANES]) { (void)r; }
#endif

#endif
