/* Rows of streams: their weighted sum, and the dot product of two. */
#ifndef TIGON_CPU_MHC_H
#define TIGON_CPU_MHC_H

#include "cpu/kernels.h"
#include "cpu/pair.h"
#include "problem/mhc.h"

enum { MHC_BLOCK = 128 * LANES }; /* columns of one f32 sum: 64 additions a lane */

/* Columns [begin, end) of out = sum over i of w[i * step] * in[i]. */
TIGON_INLINE void mhc_mix(tigon_dtype dtype, int count, const char *const *in, const float *w, int64_t step, char *out,
                          int64_t begin, int64_t end, bool stream) {
  for (int64_t c = begin; c < end; c += STEP) {
    const int n = end - c < STEP ? (int)(end - c) : STEP;
    vf2 sum = v2_set(0);
    for (int i = 0; i < count; ++i) sum = v2_fma(v2_set(w[i * step]), v2_load(in[i], c, dtype, n), sum);
    v2_put(out, c, dtype, sum, n, stream, V_ANY);
  }
}

/* Columns [begin, end), MHC_BLOCK at most, of a . b. */
TIGON_INLINE float mhc_dot(tigon_dtype dtype, const char *a, const char *b, int64_t begin, int64_t end) {
  vf2 sum = v2_set(0);
  for (int64_t c = begin; c < end; c += STEP) {
    const int n = end - c < STEP ? (int)(end - c) : STEP;
    sum = v2_fma(v2_load(a, c, dtype, n), v2_load(b, c, dtype, n), sum);
  }
  return vf_sum(vf_add(sum.a, sum.b));
}

#endif
