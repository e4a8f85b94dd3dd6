/* mhc_coeffs backward: dphi of the records. A task has a panel of channels and reads all tokens, whose sums are those of BLOCK tokens, added
 * up in order. */
#include "ascend/kernel/mhc_panel.h"

enum { BLOCK = 128 };

typedef struct state {
  const mhc_coeffs_arguments *a;
  mhc_row x;
  ring old, out;
  ub_f32 record, work, part, sums; /* a token's; tiles [coeffs, chunk] */
} state;

AICORE void add_token(state *s, int64_t t, int64_t i, int64_t c, int64_t n) {
  const mhc_coeffs_arguments *a = s->a;
  const int64_t words = a->coeffs * a->chunk;
  mhc_row_load(&s->x, &a->space, &a->x, t * a->streams + i, c, n);
  loads_after_scalar();
  load_f32(s->record, a->record + t * a->pitch * 4, 1, a->coeffs);
  scalar_after_loads();
  for (int64_t m = 0; m < a->coeffs; ++m)
    v_mul_scalar_f32(ub_at_f32(s->work, m * a->chunk), s->x.values, s_read_f32(s->record, m), a->chunk);
  sync_pipe(PIPE_V);
  add(s->part, s->part, s->work, words);
  if (t % BLOCK != BLOCK - 1 && t != a->tokens - 1) return;
  add(s->sums, s->sums, s->part, words);
  duplicate(s->part, 0, words);
}

/* [n, coeffs] as memory has it; the scalar pipe turns it round. */
AICORE void store_panel(state *s, int64_t i, int64_t c, int64_t n) {
  const mhc_coeffs_arguments *a = s->a;
  const int64_t count = n * a->coeffs, filled = round_up(count, 16), dtype = a->dphi_dtype;
  const gm_ptr to = a->dphi + (i * a->cols + c) * a->coeffs * dtype_bytes(dtype);
  duplicate(s->work, 0, filled);
  scalar_after_vectors();
  for (int64_t k = 0; k < n; ++k)
    for (int64_t m = 0; m < a->coeffs; ++m)
      s_write_f32(s->work, k * a->coeffs + m, s_read_f32(s->sums, m * a->chunk + k));
  vectors_after_scalar();
  if (a->accumulate) {
    in_begin(&s->old);
    load(dtype, s->old.start, to, 1, count);
    in_ready(&s->old);
    if (dtype != TIGON_F32) widen(dtype, s->sums, s->old.start, filled);
    add(s->work, s->work, dtype == TIGON_F32 ? s->old.start : s->sums, count);
    in_done(&s->old);
  }
  out_begin(&s->out);
  if (dtype == TIGON_F32)
    mul_scalar(s->out.start, s->work, 1, count);
  else
    narrow(dtype, s->out.start, s->work, filled);
  out_ready(&s->out);
  store(dtype, to, s->out.start, 1, count);
  out_done(&s->out);
}

AICORE_KERNEL(mhc_dphi, mhc_coeffs_arguments) {
  state s = {.a = a, .x = mhc_row_of(ub, 1, a)};
  const int64_t words = round_up(a->coeffs, 8) * a->chunk + 16, bytes = words * dtype_bytes(a->dphi_dtype);
  const int64_t each = (a->cols + a->chunk - 1) / a->chunk;
  ub_f32 *const tiles[] = {&s.work, &s.part, &s.sums};
  s.record = ub_alloc_f32(ub, a->coeffs);
  s.old = ring_of(ub, 0, 1, a->accumulate ? bytes : 0);
  s.out = ring_of(ub, 0, 1, bytes);
  for (int i = 0; i < 3; ++i) *tiles[i] = ub_alloc_f32(ub, words);
  v_duplicate_f32(s.part, 0, words);
  sync_pipe(PIPE_V);
  in_open(&s.old);
  out_open(&s.out);
  for (int64_t at = block_index(); at < a->streams * each; at += block_count()) {
    const int64_t c = at % each * a->chunk, n = least(a->chunk, a->cols - c);
    duplicate(s.sums, 0, words);
    for (int64_t t = 0; t < a->tokens; ++t) add_token(&s, t, at / each, c, n);
    store_panel(&s, at / each, c, n);
  }
  in_close(&s.x.raw);
  in_close(&s.old);
  out_close(&s.out);
}
