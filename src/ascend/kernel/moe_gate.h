/* What fused_moe's gate and its slopes share. A block has a range of positions, and goes over each row in chunks of columns. */
#ifndef TIGON_ASCEND_KERNEL_MOE_GATE_H
#define TIGON_ASCEND_KERNEL_MOE_GATE_H

#include "ascend/kernel/gate.h"
#include "ascend/kernel/moe_words.h"

typedef struct moe_rows_state {
  const moe_gate_arguments *a;
  int64_t pitch, used;         /* f32 elements from a chunk of gate to that of up; positions of slots with an expert */
  int64_t r, end, line;        /* the row, the end of the block's rows, and the row's place among the numbers on chip */
  int parts;                   /* a chunk in memory is 2 halves, or 1 part with columns in turns */
  ub_f32 slot, expert, weight; /* numbers of MOE_LINES positions */
  ring in, out, dw;            /* in: a chunk, its bias, d; out: a chunk, c */
  ub_f32 chunk, wide;          /* gate and up in f32; a widened bias */
  ub_f32 gate, up, even, odd;  /* parts of `chunk`, or gathered from it by byte offsets */
  ub_f32 bounded, slopes, merge; /* up as it multiplies; da and db, and byte offsets to turns of these */
  ub_f32 dot, sum;               /* terms of dw by column; their sum */
  gate_tiles k;
} moe_rows_state;

/* ---- the walk ---- */

AICORE void write_offsets(const moe_rows_state *s) {
  for (int64_t i = 0; i < s->pitch; ++i) {
    s_write_i32(s->even, i, (int32_t)(8 * i));
    s_write_i32(s->odd, i, (int32_t)(8 * i + 4));
  }
  for (int64_t i = 0; i < 2 * s->pitch; ++i) s_write_i32(s->merge, i, (int32_t)(4 * (i / 2 + i % 2 * s->pitch)));
  vector_waits();
}

AICORE moe_rows_state moe_open(ub_arena *ub, const moe_gate_arguments *a, bool backward) {
  const int64_t n = a->panel, turned = a->interleaved ? n : 0, slopes = backward ? n : 0;
  moe_rows_state s = {.a = a, .pitch = n, .parts = a->interleaved ? 1 : 2};
  s.slot = ub_alloc_f32(ub, MOE_LINES);
  s.expert = ub_alloc_f32(ub, MOE_LINES);
  s.weight = ub_alloc_f32(ub, MOE_LINES);
  s.in = ring_of(ub, 0, 2, (4 * n + slopes) * 4);
  s.out = ring_of(ub, 0, 2, 3 * n * 4);
  s.dw = ring_of(ub, 2, 2, UB_BLOCK);
  s.chunk = ub_alloc_f32(ub, 2 * n);
  s.wide = ub_alloc_f32(ub, 2 * n);
  s.gate = a->interleaved ? ub_alloc_f32(ub, n) : s.chunk;
  s.up = a->interleaved ? ub_alloc_f32(ub, n) : ub_at_f32(s.chunk, n);
  s.even = ub_alloc_f32(ub, turned);
  s.odd = ub_alloc_f32(ub, turned);
  s.bounded = ub_alloc_f32(ub, n);
  s.slopes = ub_alloc_f32(ub, 2 * slopes);
  s.merge = ub_alloc_f32(ub, 2 * turned);
  s.dot = ub_alloc_f32(ub, slopes);
  s.sum = ub_alloc_f32(ub, 8);
  s.k.u = ub_alloc_f32(ub, n);
  s.k.x = ub_alloc_f32(ub, n);
  s.k.y = ub_alloc_f32(ub, n);
  s.k.f = ub_alloc_f32(ub, n);
  s.k.t = ub_alloc_f32(ub, n);
  s.k.more = ub_alloc_f32(ub, n);
  s.used = moe_used(s.slot, &a->order, a->experts);
  s.r = range_begin(a->slots, block_count(), block_index()) - 1;
  s.end = range_begin(a->slots, block_count(), block_index() + 1);
  s.line = MOE_LINES - 1;
  if (a->interleaved) write_offsets(&s);
  in_open(&s.in);
  out_open(&s.out);
  out_open(&s.dw);
  return s;
}

AICORE void moe_close(const moe_rows_state *s) {
  in_close(&s->in);
  out_close(&s->out);
  out_close(&s->dw);
}

/* The next row; its slot, expert and weight are there for the scalar pipe. */
AICORE bool moe_next(moe_rows_state *s) {
  const moe_sorted *order = &s->a->order;
  if (++s->r >= s->end) return false;
  if (++s->line < MOE_LINES) return true;
  const int64_t n = least(MOE_LINES, s->end - s->r);
  s->line = 0;
  loads_after_scalar();
  load_f32(s->slot, order->slot + s->r * 4, 1, n);
  load_f32(s->expert, order->expert + s->r * 4, 1, n);
  load_f32(s->weight, order->weight + s->r * 4, 1, n);
  scalar_after_loads();
  return true;
}
AICORE float moe_weight(const moe_rows_state *s) { return s_read_f32(s->weight, s->line); }

/* ---- chunks ---- */

/* Part i of columns [j, j + n) of gate and up: where it begins in a matrix of such rows, and its columns. */
AICORE int64_t part_at(const moe_rows_state *s, int64_t row, int64_t j, int i) {
  return row * 2 * s->a->inner + (s->parts == 1 ? 2 * j : i * s->a->inner + j);
}
AICORE int64_t part_cols(const moe_rows_state *s, int64_t n) { return s->parts == 1 ? 2 * n : n; }

AICORE void load_chunk(moe_rows_state *s, int64_t j, int64_t n) {
  const moe_gate_arguments *a = s->a;
  const int64_t dtype = a->made ? (int64_t)TIGON_F32 : a->dtype;
  const ub_f32 to = ring_now(&s->in);
  in_begin(&s->in);
  for (int i = 0; i < s->parts; ++i) {
    load(dtype, ub_at_f32(to, i * s->pitch), a->from + part_at(s, s->r, j, i) * dtype_bytes(dtype), 1, part_cols(s, n));
    if (!a->bias) continue;
    const int64_t at = part_at(s, s_read_i32(s->expert, s->line), j, i);
    load(a->bias_dtype, ub_at_f32(to, (2 + i) * s->pitch), a->bias + at * dtype_bytes(a->bias_dtype), 1,
         part_cols(s, n));
  }
  if (a->d) load_f32(ub_at_f32(to, 4 * s->pitch), a->d + (s->r * a->inner + j) * 4, 1, n);
  in_ready(&s->in);
}

/* gate and up as pre has them, and pre itself to the output's place. */
AICORE void take_chunk(const moe_rows_state *s, int64_t n) {
  const moe_gate_arguments *a = s->a;
  const int64_t cols = part_cols(s, n);
  for (int i = 0; i < s->parts; ++i) {
    const ub_f32 from = ub_at_f32(ring_now(&s->in), i * s->pitch), bias = ub_at_f32(from, 2 * s->pitch);
    const ub_f32 to = ub_at_f32(s->chunk, i * s->pitch), rounded = ub_at_f32(ring_now(&s->out), i * s->pitch);
    if (!a->made && a->dtype != TIGON_F32)
      widen(a->dtype, to, from, cols);
    else if (a->bias)
      add(to, from, values_of(a->bias_dtype, s->wide, bias, (tile){1, cols, cols}), cols);
    else
      mul_scalar(to, from, 1, cols);
    if (!a->made) continue;
    put(a->dtype, rounded, to, cols);
    if (a->dtype != TIGON_F32) widen(a->dtype, to, rounded, cols);
  }
  if (!a->interleaved) return;
  v_gather_f32(s->gate, s->chunk, s->even, n);
  v_gather_f32(s->up, s->chunk, s->odd, n);
  sync_pipe(PIPE_V);
}

/* k.x = down_mult * act(u); gate and up stay as they are. */
AICORE void activate_chunk(moe_rows_state *s, int64_t n, bool backward) {
  const moe_gate_arguments *a = s->a;
  s->k.n = n;
  const bool clamps = a->clamp > 0;
  if (clamps) at_most(s->k.u, s->gate, a->clamp, n);
  if (clamps) clip(s->bounded, s->up, a->clamp, n);
  mul_scalar(s->k.u, clamps ? s->k.u : s->gate, a->gate_mult, n);
  add_scalar(s->bounded, clamps ? s->bounded : s->up, a->up_offset, n);
  activate(&s->k, a->gelu ? GELU_TANH : SILU, true, backward);
  mul_scalar(s->k.x, s->k.x, a->down_mult, n);
}

/* What lies at the output's place to memory: a chunk of gate and up, and c. */
AICORE void store_chunk(moe_rows_state *s, int64_t j, int64_t n) {
  const moe_gate_arguments *a = s->a;
  const int64_t size = dtype_bytes(a->dtype);
  const ub_f32 from = ring_now(&s->out);
  out_ready(&s->out);
  for (int i = 0; i < s->parts && a->to; ++i)
    store(a->dtype, a->to + part_at(s, s->r, j, i) * size, ub_at_f32(from, i * s->pitch), 1, part_cols(s, n));
  store(a->dtype, a->c + (s->r * a->inner + j) * size, ub_at_f32(from, 2 * s->pitch), 1, n);
  out_done(&s->out);
}

#endif
