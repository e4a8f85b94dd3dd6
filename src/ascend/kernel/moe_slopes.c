/* The slopes of fused_moe's gate: dpre, w * c and dw. */
#include "ascend/kernel/moe_gate.h"

/* da and db of a chunk to slopes, w * c to its output, and the terms of dw. */
AICORE void slope_chunk(const moe_rows_state *s, int64_t n) {
  const moe_gate_arguments *a = s->a;
  const ub_f32 d = ub_at_f32(ring_now(&s->in), 4 * s->pitch), da = s->slopes, db = ub_at_f32(s->slopes, s->pitch);
  const float w = moe_weight(s);
  const ub_f32 value = s->k.x, c = s->k.more, dc = s->k.f, work = s->k.t;
  mul(c, value, s->bounded, n);
  mul(work, c, d, n);
  add(s->dot, s->dot, work, n);
  mul_scalar(c, c, w, n);
  put(a->dtype, ub_at_f32(ring_now(&s->out), 2 * s->pitch), c, n);
  mul_scalar(dc, d, w, n);
  mul(db, value, dc, n);
  mul(da, s->bounded, dc, n);
  mul_scalar(da, da, a->down_mult, n);
  mul_scalar(da, da, a->gate_mult, n);
  mul(da, da, s->k.slope, n);
  if (!(a->clamp > 0)) return;
  clear_beyond(da, s->gate, a->clamp, n);
  absolute(work, s->up, n);
  clear_beyond(db, work, a->clamp, n);
}

/* slopes to the output's place, as dpre has them. */
AICORE void put_slopes(const moe_rows_state *s, int64_t n) {
  ub_f32 from = s->slopes;
  if (s->a->interleaved) {
    v_gather_f32(s->chunk, s->slopes, s->merge, 2 * n);
    sync_pipe(PIPE_V);
    from = s->chunk;
  }
  for (int i = 0; i < s->parts; ++i)
    put(s->a->dtype, ub_at_f32(ring_now(&s->out), i * s->pitch), ub_at_f32(from, i * s->pitch), part_cols(s, n));
}

/* Terms of dy . down_bias. */
AICORE void add_bias_terms(moe_rows_state *s) {
  const moe_gate_arguments *a = s->a;
  const int64_t e = s_read_i32(s->expert, s->line);
  for (int64_t c = 0; c < a->cols; c += s->pitch) {
    const tile t = {1, least(s->pitch, a->cols - c), least(s->pitch, a->cols - c)};
    const ub_f32 dy = ring_now(&s->in), bias = ub_at_f32(dy, s->pitch);
    in_begin(&s->in);
    load(a->dtype, dy, a->dy + (s->r * a->cols + c) * dtype_bytes(a->dtype), 1, t.cols);
    load(a->down_bias_dtype, bias, a->down_bias + (e * a->cols + c) * dtype_bytes(a->down_bias_dtype), 1, t.cols);
    in_ready(&s->in);
    mul(s->k.t, values_of(a->dtype, s->wide, dy, t),
        values_of(a->down_bias_dtype, ub_at_f32(s->wide, s->pitch), bias, t), t.cols);
    add(s->dot, s->dot, s->k.t, t.cols);
    in_done(&s->in);
  }
}

AICORE void store_dw(moe_rows_state *s, bool is_zero) {
  const moe_gate_arguments *a = s->a;
  if (!is_zero) row_sums(s->sum, s->dot, (tile){1, s->pitch, s->pitch});
  out_begin(&s->dw);
  if (is_zero)
    duplicate(ring_now(&s->dw), 0, 8);
  else
    put(a->dw_dtype, ring_now(&s->dw), s->sum, 1);
  out_ready(&s->dw);
  store(a->dw_dtype, a->dw + s_read_i32(s->slot, s->line) * dtype_bytes(a->dw_dtype), ring_now(&s->dw), 1, 1);
  out_done(&s->dw);
}

AICORE void slope_row(moe_rows_state *s) {
  const moe_gate_arguments *a = s->a;
  duplicate(s->dot, 0, s->pitch);
  for (int64_t j = 0; j < a->inner; j += s->pitch) {
    const int64_t n = least(s->pitch, a->inner - j);
    load_chunk(s, j, n);
    out_begin(&s->out);
    take_chunk(s, n);
    activate_chunk(s, n, true);
    slope_chunk(s, n);
    in_done(&s->in);
    put_slopes(s, n);
    store_chunk(s, j, n);
  }
  if (!a->dw) return;
  if (a->down_bias) add_bias_terms(s);
  store_dw(s, false);
}

AICORE_KERNEL(moe_slopes, moe_gate_arguments) {
  moe_rows_state s = moe_open(ub, a, true);
  while (moe_next(&s)) {
    if (s.r < s.used)
      slope_row(&s);
    else if (a->dw)
      store_dw(&s, true);
  }
  moe_close(&s);
}
