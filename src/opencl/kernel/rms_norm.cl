/* rms_norm, fused_add_rms_norm and modulated_rms_norm. */
#include "norm_bwd.cl"
#include "rows.cl"

NORM_FWD_KERNEL(rms_norm_fwd, false)
NORM_BWD_KERNEL(rms_norm_bwd, false)

/* ---- quantised: a row is read for its root, for its largest |y|, and for q, where its y is not kept ---- */

/* Bits as src/core/half.h makes them: to the nearest, ties to even. A NaN is 0x7f; as i8 it is 0. */
static inline vu f8e4m3_of(vf v, const bool finite) {
  const vf size = finite ? fabs(v) : fmin(fabs(v), (vf)(448.0f));
  const vu u = as_vu(size), normal = ((u + 0x7ffff + (u >> 20 & 1)) >> 20) - (120 << 3);
  const vu small = as_vu(size + 0x1p14f) - as_uint(0x1p14f); /* the sum's last bit is 2^-9 */
  const vu code = (as_vu(v) >> 24 & 0x80) | select(normal, small, size < 0x1p-6f);
  return finite ? code : select(code, (vu)(0x7f), isnan(v));
}
static inline vu i8_of(vf v, const bool finite) {
  const vf kept = finite ? v : between_of(-127.0f, either(isnan(v), (vf)(0.0f), v), 127.0f);
  return (as_vu(kept + 0x1.8p23f) - as_uint(0x1.8p23f)) & 0xff;
}

typedef PASTE(uchar, LANES) __attribute__((aligned(1))) loose_uc;
static inline void store_bytes(memory q, long i, long n, vu bits) {
  const loose_uc bytes = PASTE(convert_uchar, LANES)(bits);
  if (n >= LANES) {
    *(__global loose_uc *)(q + i) = bytes;
    return;
  }
  uchar part[LANES];
  PASTE(vstore, LANES)(bytes, 0, part);
  for (int j = 0; j < n; ++j) q[i + j] = part[j];
}

__kernel void rms_norm_quantised(TENSOR(x), TENSOR(w), TENSOR(z), TENSOR(q), TENSOR(scale), const norm_fwd_numbers k) {
  ROOM
  const norm_fwd_memory m = {.x = memory_of(x), .w = or_null(w), .z = or_null(z)};
  const memory bytes = memory_of(q);
  const bool keeps = IS_ALONE && k.cols <= KEPT * LANES;
  vf kept[KEPT];
  for (long r = row_first(); r < k.space.rows; r += row_step()) {
    const norm_row row = norm_start(false, &m, &k, r, space);
    const long after = row_offset(&k.space, &k.x, row_after(r, k.space.rows));
    vu largest = 0; /* bits of |y| rise with it, and a NaN's are beyond all others */
    FOR_ROW(i, n, k.cols) {
      const vf v = first_or(norm_value(false, &m, &k, &row, i, n), n, 0);
      if (keeps) kept[i / LANES] = v;
      ask_for(m.x, after + i, T);
      largest = max(largest, as_vu(v) & 0x7fffffff);
    }
    const float of = row_max(max_of(as_vf(largest))) / (k.is_i8 ? 127.0f : 448.0f), unit = of < 0x1p-126f ? 1 : of;
    if (row_leads()) FLOATS_OF(scale)[r] = unit;
    const bool finite = of < INFINITY;
#pragma unroll
    for (int is = 0; is < 2; ++is)
      if (is == finite) FOR_ROW(i, n, k.cols) {
        const vf v = (keeps ? kept[i / LANES] : norm_value(false, &m, &k, &row, i, n)) / unit;
        store_bytes(bytes, row.y + i, n, k.is_i8 ? i8_of(v, is) : f8e4m3_of(v, is));
      }
  }
}
