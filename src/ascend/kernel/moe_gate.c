/* fused_moe's gate: pre and c of products. */
#include "ascend/kernel/moe_gate.h"

/* A row of pre for a slot of no expert. */
AICORE void clear_row(moe_rows_state *s) {
  const moe_gate_arguments *a = s->a;
  const int64_t cols = 2 * a->inner, most = 2 * s->pitch;
  for (int64_t c = 0; c < cols; c += most) {
    out_begin(&s->out);
    duplicate(ring_now(&s->out), 0, most);
    out_ready(&s->out);
    store(a->dtype, a->to + (s->r * cols + c) * dtype_bytes(a->dtype), ring_now(&s->out), 1, least(most, cols - c));
    out_done(&s->out);
  }
}

AICORE void gate_row(moe_rows_state *s) {
  const moe_gate_arguments *a = s->a;
  for (int64_t j = 0; j < a->inner; j += s->pitch) {
    const int64_t n = least(s->pitch, a->inner - j);
    load_chunk(s, j, n);
    out_begin(&s->out);
    take_chunk(s, n);
    in_done(&s->in);
    activate_chunk(s, n, false);
    mul(s->k.x, s->k.x, s->bounded, n);
    if (a->weighted) mul_scalar(s->k.x, s->k.x, moe_weight(s), n);
    put(a->dtype, ub_at_f32(ring_now(&s->out), 2 * s->pitch), s->k.x, n);
    store_chunk(s, j, n);
  }
}

AICORE_KERNEL(moe_gate, moe_gate_arguments) {
  moe_rows_state s = moe_open(ub, a, false);
  while (moe_next(&s)) {
    if (s.r < s.used)
      gate_row(&s);
    else if (a->to)
      clear_row(&s);
  }
  moe_close(&s);
}
