/* mhc_coeffs backward: dx of the records, a panel of phi for a group of tokens. */
#include "ascend/kernel/mhc_panel.h"

typedef struct state {
  const mhc_coeffs_arguments *a;
  mhc_panel panel;
  mhc_row row; /* x, then dy */
  ring out;
  ub_f32 records, spread; /* [lanes, pitch]; a block for each coefficient */
} state;

/* Channels [c, c + n) of stream i of token t, whose record is that of `lane`. */
AICORE void find_dx(state *s, int64_t t, int64_t lane, int64_t i, int64_t c, int64_t n) {
  const mhc_coeffs_arguments *a = s->a;
  mhc_panel *p = &s->panel;
  const tile of = {a->coeffs, n, p->pitch};
  const int64_t at = lane * a->pitch, back = at + mhc_record_back(a), row = t * a->streams + i;
  const ub_f32 dx = p->work, x = s->row.values;
  by_rows(ROW_MUL, p->work, p->rows, ub_at_f32(s->records, at), s->spread, of);
  fold_rows(p->work, of);
  mhc_row_load(&s->row, &a->space, &a->x, row, c, n);
  mul_scalar(x, x, s_read_f32(s->records, back + 1), n);
  mul_scalar(x, x, s_read_f32(s->records, back), n);
  sub(dx, dx, x, n);
  if (a->dy.data) {
    mhc_row_load(&s->row, &a->token_space, &a->dy, t, c, n);
    mul_scalar(x, x, s_read_f32(s->records, at + mhc_record_h(a) + i), n);
    add(dx, dx, x, n);
  }
  out_begin(&s->out);
  if (a->dtype == TIGON_F32)
    mul_scalar(ring_now(&s->out), dx, 1, n);
  else
    narrow(a->dtype, ring_now(&s->out), dx, n);
  out_ready(&s->out);
  store(a->dtype, row_at(&a->space, &a->dx, dtype_bytes(a->dtype), row, c), ring_now(&s->out), 1, n);
  out_done(&s->out);
}

AICORE_KERNEL(mhc_dx, mhc_coeffs_arguments) {
  state s = {.a = a, .panel = mhc_panel_of(ub, 0, a), .row = mhc_row_of(ub, 1, a)};
  const int64_t end = least(a->tokens, mhc_group_begin(a, block_index() + 1));
  s.out = ring_of(ub, 0, 2, round_up(a->chunk, 16) * dtype_bytes(a->dtype));
  s.records = ub_alloc_f32(ub, MHC_LANES * a->pitch);
  s.spread = ub_alloc_f32(ub, round_up(a->coeffs, 8) * 8);
  out_open(&s.out);
  for (int64_t t0 = mhc_group_begin(a, block_index()); t0 < end; t0 += MHC_LANES) {
    const int64_t count = least(MHC_LANES, end - t0);
    loads_after_scalar();
    loads_after_vectors();
    load_f32(s.records, a->record + t0 * a->pitch * 4, 1, count * a->pitch);
    scalar_after_loads();
    vectors_after_scalar();
    for (int64_t i = 0; i < a->streams; ++i)
      for (int64_t c = 0; c < a->cols; c += a->chunk) {
        const int64_t n = least(a->chunk, a->cols - c);
        mhc_panel_load(&s.panel, i, c, n);
        for (int64_t t = 0; t < count; ++t) find_dx(&s, t0 + t, t, i, c, n);
      }
  }
  in_close(&s.panel.raw);
  in_close(&s.row.raw);
  out_close(&s.out);
}
