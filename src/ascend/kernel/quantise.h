/* Bytes of a tile: its integers as i8, or the bits of f8e4m3, to which these parts have no cast. Integers of f32 up to 2048 are f16's
 * too, from which the cast to bytes starts. */
#ifndef TIGON_ASCEND_KERNEL_QUANTISE_H
#define TIGON_ASCEND_KERNEL_QUANTISE_H

#include "ascend/kernel/bits.h"
#include "ascend/kernel/rows.h"

/* code = v's byte as f8e4m3, as an integer from -128 to 127; 127 of a NaN. v and `work` are used up. */
AICORE void f8e4m3_codes(ub_f32 code, ub_f32 v, ub_f32 work, int64_t n) {
  duplicate(work, -0.0f, n); /* the sign's bit: -2^31 as an integer */
  v_and_f32(code, v, work, n);
  sync_pipe(PIPE_V);
  v_f32_from_i32(code, code, n);
  sync_pipe(PIPE_V);
  mul_scalar(code, code, 0x1p-24f, n);
  absolute(v, v, n);
  at_most(v, v, 448, n);
  /* With 2^20 times v's power of two, but at least 2^-6, v is rounded to an eighth of that power. */
  duplicate(work, __builtin_inff(), n); /* the exponent's bits */
  v_and_f32(work, v, work, n);
  sync_pipe(PIPE_V);
  at_least(work, work, 0x1p-6f, n);
  mul_scalar(work, work, 0x1p20f, n);
  add(v, v, work, n);
  sub(v, v, work, n);
  /* What is below 2^-6 counts 2^-9, and its exponent is 0; 968 = 8 * 121 are the bits of 2^-6, less its own 8 and 2^-6 / 2^-9. */
  at_most(work, v, 0x1p-6f, n);
  mul_scalar(work, work, 0x1p9f, n);
  add(code, code, work, n);
  at_least(v, v, 0x1p-6f, n);
  v_f32_from_i32(v, v, n);
  sync_pipe(PIPE_V);
  mul_scalar(v, v, 0x1p-20f, n);
  add(code, code, v, n);
  add_scalar(code, code, -968, n);
  /* A NaN's bits are cleared, and what it lacks to 127 is added. */
  mul_scalar(work, code, 0, n);
  add_scalar(work, work, -1, n);
  v_i32_from_f32(work, work, n);
  duplicate(v, 127, n);
  clear(code, work, n);
  clear(v, work, n);
  sub(code, code, v, n);
  add_scalar(code, code, 127, n);
}

/* code = the nearest integer; 0 of a NaN. v is used up. */
AICORE void i8_codes(ub_f32 code, ub_f32 v, int64_t n) {
  v_i32_from_f32(v, v, n);
  sync_pipe(PIPE_V);
  v_f32_from_i32(code, v, n);
  sync_pipe(PIPE_V);
}

/* Rows of bytes begin on 32 of them, and may be further apart than those of the tile t. `work` has room for as many f16 elements. */
AICORE void bytes_of(ub_f32 bytes, ub_f32 codes, ub_f32 work, tile t) {
  const int64_t pitch = tile_of(TIGON_I8, 1, t.cols).pitch, calls = pitch == t.pitch ? 1 : t.rows;
  const int64_t n = calls == t.rows ? t.cols : t.rows * t.pitch;
  const ub_f16 half = ub_as_f16(work);
  for (int64_t i = 0; i < calls; ++i) v_f16_from_f32(ub_at_f16(half, i * pitch), ub_at_f32(codes, i * t.pitch), n);
  sync_pipe(PIPE_V);
  for (int64_t i = 0; i < calls; ++i)
    v_i8_from_f16(ub_at_i8(ub_as_i8(bytes), i * pitch), ub_at_f16(half, i * pitch), n);
  sync_pipe(PIPE_V);
}

#endif
