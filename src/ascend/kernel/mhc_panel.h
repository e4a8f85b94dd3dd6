/* A panel of phi, some channels of one stream, with a row for each coefficient: [coeffs, channels]. */
#ifndef TIGON_ASCEND_KERNEL_MHC_PANEL_H
#define TIGON_ASCEND_KERNEL_MHC_PANEL_H

#include "ascend/kernel/mhc.h"
#include "ascend/kernel/norm.h"
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/scalar.h"

/* A row of x or dy as it comes, and in f32. */
typedef struct mhc_row {
  const mhc_coeffs_arguments *a;
  ring raw;
  ub_f32 values;
} mhc_row;

AICORE mhc_row mhc_row_of(ub_arena *ub, int id, const mhc_coeffs_arguments *a) {
  const int64_t pitch = round_up(a->chunk, 16);
  const mhc_row r = {a, ring_of(ub, id, 2, pitch * dtype_bytes(a->dtype)), ub_alloc_f32(ub, pitch)};
  duplicate(r.values, 0, pitch);
  in_open(&r.raw);
  return r;
}
/* Columns [c, c + n) of row r of a tensor. */
AICORE void mhc_row_load(mhc_row *of, const gm_space *space, const gm_rows *t, int64_t r, int64_t c, int64_t n) {
  const int64_t dtype = of->a->dtype;
  in_begin(&of->raw);
  load(dtype, ring_now(&of->raw), row_at(space, t, dtype_bytes(dtype), r, c), 1, n);
  in_ready(&of->raw);
  if (dtype == TIGON_F32)
    mul_scalar(of->values, ring_now(&of->raw), 1, n);
  else
    widen(dtype, of->values, ring_now(&of->raw), round_up(n, 16));
  in_done(&of->raw);
}

/* `rows` has one more than coefficients, rounded up to 8; `work` is a tile like it. */
typedef struct mhc_panel {
  const mhc_coeffs_arguments *a;
  ring raw;                 /* phi as it lies, in its own dtype */
  ub_f32 rows, work, order; /* order: byte offsets of 8 coefficients, as they lie, by rows */
  int64_t pitch;            /* pitch of rows */
} mhc_panel;

AICORE int64_t mhc_rows(const mhc_coeffs_arguments *a) { return round_up(a->coeffs + 1, 8); }

AICORE mhc_panel mhc_panel_of(ub_arena *ub, int id, const mhc_coeffs_arguments *a) {
  const int64_t words = mhc_rows(a) * a->chunk;
  mhc_panel p = {.a = a, .pitch = a->chunk};
  p.raw = ring_of(ub, id, 1, (a->chunk * a->coeffs + 16) * dtype_bytes(a->phi_dtype));
  p.rows = ub_alloc_f32(ub, words);
  p.work = ub_alloc_f32(ub, words + 16);
  p.order = ub_alloc_f32(ub, 8 * a->chunk);
  for (int64_t i = 0; i < 8 * a->chunk; ++i)
    s_write_i32(p.order, i, (int32_t)(4 * (i % a->chunk * a->coeffs + i / a->chunk)));
  vector_waits();
  v_duplicate_f32(p.rows, 0, words);
  v_duplicate_f32(p.work, 0, words + 16);
  v_duplicate_f32(p.raw.start, 0, p.raw.elements);
  sync_pipe(PIPE_V);
  in_open(&p.raw);
  return p;
}

/* Channels [c, c + n) of stream i. What lies beyond n is of an earlier panel, and is not used. */
AICORE void mhc_panel_load(mhc_panel *p, int64_t i, int64_t c, int64_t n) {
  const mhc_coeffs_arguments *a = p->a;
  const int64_t count = n * a->coeffs;
  in_begin(&p->raw);
  load(a->phi_dtype, p->raw.start, a->phi + (i * a->cols + c) * a->coeffs * dtype_bytes(a->phi_dtype), 1, count);
  in_ready(&p->raw);
  const bool f32 = a->phi_dtype == TIGON_F32;
  if (!f32) widen(a->phi_dtype, p->work, p->raw.start, round_up(count, 16));
  for (int64_t m = 0; m < a->coeffs; m += 8)
    v_gather_f32(ub_at_f32(p->rows, m * p->pitch), ub_at_f32(f32 ? p->raw.start : p->work, m), p->order, 8 * a->chunk);
  sync_pipe(PIPE_V);
  in_done(&p->raw);
}

/* The alpha of each coefficient, and b, in f32. Flags 3 to 6 are theirs. */
AICORE void mhc_load_alphas(ub_arena *ub, const mhc_coeffs_arguments *a, ub_f32 alphas) {
  for (int i = 0; i < 3; ++i) {
    const int64_t n = a->streams, first = i * n, end = i < 2 ? first + n : a->coeffs;
    float alpha = 0;
    read_numbers(ub, 3 + i, a->alpha[i], a->alpha_dtype[i], 1, &alpha);
    for (int64_t m = first; m < end; ++m) s_write_f32(alphas, m, alpha);
  }
  vector_waits();
}
AICORE void mhc_load_b(ub_arena *ub, const mhc_coeffs_arguments *a, ub_f32 b) {
  const int64_t pitch = round_up(a->coeffs, 16);
  columns c = columns_of(ub, 6, a->b, a->b_dtype, 0, pitch, ub_alloc_f32(ub, 0), false);
  in_open(&c.stage);
  columns_load(&c, 0, a->coeffs, pitch);
  mul_scalar(b, c.values, 1, pitch);
  in_close(&c.stage);
}

/* The range of a block's groups of MHC_LANES tokens. */
AICORE int64_t mhc_group_begin(const mhc_coeffs_arguments *a, int64_t block) {
  const int64_t groups = (a->tokens + MHC_LANES - 1) / MHC_LANES;
  return range_begin(groups, block_count(), block) * MHC_LANES;
}

#endif
