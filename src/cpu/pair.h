/* Two vectors at once, for work on rows: elements i .. i + STEP - 1 in an order of the dtype's own, which is the order in
 * which they are put back. A bf16 is widened by one instruction so, and 64 bytes are stored at once. A NaN that is put or
 * rounded must be quiet, as the result of arithmetic is. */
#ifndef TIGON_CPU_PAIR_H
#define TIGON_CPU_PAIR_H

#include "cpu/simd.h"

enum { STEP = 2 * LANES };

/* The first n <= STEP elements from i; the others are 0 and not touched. */
TIGON_INLINE vf2 v2_load(const void *data, int64_t i, tigon_dtype dtype, int n) {
  if (dtype == TIGON_BF16) {
    const uint16_t *p = (const uint16_t *)data + i;
    return n == STEP ? vf_load2_bf16(p) : vf_load2_bf16_n(p, n);
  }
  if (n == STEP) return (vf2){v_load(data, i, dtype), v_load(data, i + LANES, dtype)};
  return (vf2){v_load_n(data, i, dtype, n < LANES ? n : LANES),
               n > LANES ? v_load_n(data, i + LANES, dtype, n - LANES) : vf_zero()};
}
/* Non-temporal stores all wait for one whose page is not in the TLB. So once in each page, the page after it is looked up. */
TIGON_INLINE void v_next_page(const char *p, int64_t bytes) {
  enum { PAGE = 4096 };
  if ((int64_t)((uintptr_t)p % PAGE) < bytes) vf_prefetch(p + PAGE);
}
/* `stream`: past the caches, where n is STEP; the address must be aligned to V_LINE bytes. */
TIGON_INLINE void v2_put(void *data, int64_t i, tigon_dtype dtype, vf2 v, int n, bool stream, v_values are) {
  if (stream && n == STEP) v_next_page((const char *)data + i * v_size(dtype), STEP * v_size(dtype));
  if (dtype == TIGON_BF16) {
    uint16_t *p = (uint16_t *)data + i;
    if (n != STEP)
      vf_store2_bf16_n(p, v, n);
    else if (stream)
      vf_stream2_bf16(p, v, are);
    else
      vf_store2_bf16(p, v, are);
  } else if (n == STEP) {
    v_put(data, i, dtype, v.a, stream);
    v_put(data, i + LANES, dtype, v.b, stream);
  } else {
    v_store_n(data, i, dtype, v.a, n < LANES ? n : LANES);
    if (n > LANES) v_store_n(data, i + LANES, dtype, v.b, n - LANES);
  }
}
TIGON_INLINE bool v2_aligned(const void *data) { return (uintptr_t)data % V_LINE == 0; }
/* The lines of elements i .. i + STEP - 1, into the L2: the L1 has the rows at work. */
TIGON_INLINE void v2_prefetch(const void *data, int64_t i, tigon_dtype dtype) {
  for (int64_t at = 0; at < STEP * v_size(dtype); at += 64) vf_prefetch_l2((const char *)data + i * v_size(dtype) + at);
}

/* The dtype's order from the natural one, where a holds elements 0 .. LANES - 1 and b the others; and back. */
TIGON_INLINE vf2 v2_order(vf2 v, tigon_dtype dtype) { return dtype == TIGON_BF16 ? vf_split(v) : v; }
TIGON_INLINE vf2 v2_natural(vf2 v, tigon_dtype dtype) { return dtype == TIGON_BF16 ? vf_zip(v) : v; }
/* Even elements in a and odd ones in b, of what v2_load gave, and back to what v2_put takes. */
TIGON_INLINE vf2 v2_even_odd(vf2 v, tigon_dtype dtype) { return dtype == TIGON_BF16 ? v : vf_split(v); }
TIGON_INLINE vf2 v2_from_even_odd(vf2 v, tigon_dtype dtype) { return dtype == TIGON_BF16 ? v : vf_zip(v); }

TIGON_INLINE vf2 v2_set(float a) { return (vf2){vf_set(a), vf_set(a)}; }
TIGON_INLINE vf2 v2_add(vf2 a, vf2 b) { return (vf2){vf_add(a.a, b.a), vf_add(a.b, b.b)}; }
TIGON_INLINE vf2 v2_sub(vf2 a, vf2 b) { return (vf2){vf_sub(a.a, b.a), vf_sub(a.b, b.b)}; }
TIGON_INLINE vf2 v2_mul(vf2 a, vf2 b) { return (vf2){vf_mul(a.a, b.a), vf_mul(a.b, b.b)}; }
TIGON_INLINE vf2 v2_fma(vf2 a, vf2 b, vf2 c) { return (vf2){vf_fma(a.a, b.a, c.a), vf_fma(a.b, b.b, c.b)}; }
TIGON_INLINE vf2 v2_fnma(vf2 a, vf2 b, vf2 c) { return (vf2){vf_fnma(a.a, b.a, c.a), vf_fnma(a.b, b.b, c.b)}; }
/* Rounded to the dtype and back. */
TIGON_INLINE vf2 v2_round(vf2 v, tigon_dtype dtype, v_values are) {
  if (dtype == TIGON_BF16) return vf_round2_bf16(v, are);
  return (vf2){v_round(v.a, dtype), v_round(v.b, dtype)};
}

#endif
