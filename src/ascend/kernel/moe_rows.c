/* fused_moe's rows outside of its gate: rows of tokens by position, sums over a token's choices, and over an expert's slots. */
#include "ascend/kernel/column_sums.h"
#include "ascend/kernel/moe_words.h"

/* ---- rows of tokens by position: they go in and out through the same buffer ---- */

AICORE_KERNEL(moe_gather, moe_gather_arguments) {
  const int64_t size = dtype_bytes(a->dtype);
  const gm_space sorted = moe_space(a->slots);
  const gm_rows to = moe_rows(a->to, a->cols);
  ring rows = ring_of(ub, 0, 2, tile_bytes(a->dtype, tile_of(a->dtype, a->tile_rows, a->tile_cols)));
  const ub_f32 slots = ub_alloc_f32(ub, MOE_TILE_ROWS);
  const int64_t used = moe_used(slots, &a->order, a->experts);
  for (int i = 0; i < rows.count; ++i) sync_set(PIPE_MTE3, PIPE_MTE2, i);
  for (int64_t r = block_index() * a->tile_rows; r < used; r += block_count() * a->tile_rows) {
    const int64_t count = least(a->tile_rows, used - r);
    moe_word(slots, a->order.slot + r * 4, count);
    for (int64_t c = 0; c < a->cols; c += a->tile_cols) {
      const tile t = tile_of(a->dtype, count, least(a->tile_cols, a->cols - c));
      const ub_f32 at = ring_now(&rows);
      sync_wait(PIPE_MTE3, PIPE_MTE2, rows.at);
      for (int64_t i = 0; i < count; ++i)
        load(a->dtype, ub_at_f32(at, i * t.pitch * size / 4),
             row_at(&a->space, &a->from, size, s_read_i32(slots, i) / a->top_k, c), 1, t.cols);
      sync_set(PIPE_MTE2, PIPE_MTE3, rows.at);
      sync_wait(PIPE_MTE2, PIPE_MTE3, rows.at);
      store_tile(a->dtype, &sorted, &to, at, t, r, c);
      sync_set(PIPE_MTE3, PIPE_MTE2, rows.at);
      ring_turn(&rows);
    }
  }
  for (int i = 0; i < rows.count; ++i) sync_wait(PIPE_MTE3, PIPE_MTE2, i);
}

/* ---- sums over a token's choices ---- */

typedef struct state {
  const moe_token_sums_arguments *a;
  int64_t used;
  int64_t begin, end; /* the slots whose numbers are on chip */
  ub_f32 positions, indices, raw, weights;
  ring in, out; /* in: a share, then a bias */
  ub_f32 sum, wide;
} state;

AICORE void load_lines(state *s, int64_t slot) {
  const moe_token_sums_arguments *a = s->a;
  const int64_t words = index_words(a->idx_dtype), n = least(MOE_LINES, a->space.rows * a->top_k - slot);
  loads_after_scalar();
  load_f32(s->positions, a->order.position + slot * 4, 1, n);
  if (a->bias) load_f32(s->indices, a->idx + slot * words * 4, 1, n * words);
  if (a->w) load(a->w_dtype, s->raw, a->w + slot * dtype_bytes(a->w_dtype), 1, n);
  scalar_after_loads();
  if (a->w) moe_weights(a->w_dtype, s->weights, s->raw, n);
  s->begin = slot;
  s->end = slot + n;
}

/* Columns [c, c + n) of a slot's share. */
AICORE void add_choice(state *s, int64_t slot, int64_t c, int64_t n) {
  const moe_token_sums_arguments *a = s->a;
  if (slot < s->begin || slot >= s->end) load_lines(s, slot);
  const int64_t i = slot - s->begin, position = s_read_i32(s->positions, i);
  if (position >= s->used) return;
  const ub_f32 share = ring_now(&s->in), bias = ub_at_f32(share, a->panel);
  in_begin(&s->in);
  load_f32(share, a->shares + (position * a->cols + c) * 4, 1, n);
  if (a->bias) {
    const int64_t e = moe_expert(a->idx_dtype, s->indices, i, a->experts);
    load(a->bias_dtype, bias, a->bias + (e * a->cols + c) * dtype_bytes(a->bias_dtype), 1, n);
  }
  in_ready(&s->in);
  if (a->bias) add(share, share, values_of(a->bias_dtype, s->wide, bias, (tile){1, n, n}), n);
  if (a->w) mul_scalar(share, share, s_read_f32(a->w_dtype == TIGON_F32 ? s->raw : s->weights, i), n);
  add(s->sum, s->sum, share, n);
  in_done(&s->in);
}

AICORE_KERNEL(moe_token_sums, moe_token_sums_arguments) {
  const int64_t rows = a->space.rows, size = dtype_bytes(a->dtype);
  state s = {.a = a};
  s.positions = ub_alloc_f32(ub, MOE_LINES);
  s.indices = ub_alloc_f32(ub, MOE_LINES * 2);
  s.raw = ub_alloc_f32(ub, MOE_LINES);
  s.weights = ub_alloc_f32(ub, MOE_LINES);
  s.in = ring_of(ub, 0, 2, 2 * a->panel * 4);
  s.out = ring_of(ub, 0, 2, a->panel * 4);
  s.sum = ub_alloc_f32(ub, a->panel);
  s.wide = ub_alloc_f32(ub, a->panel);
  s.used = moe_used(s.positions, &a->order, a->experts);
  in_open(&s.in);
  out_open(&s.out);
  const int64_t end = range_begin(rows, block_count(), block_index() + 1);
  for (int64_t t = range_begin(rows, block_count(), block_index()); t < end; ++t) {
    for (int64_t c = 0; c < a->cols; c += a->panel) {
      const int64_t n = least(a->panel, a->cols - c);
      duplicate(s.sum, 0, n);
      for (int64_t k = 0; k < a->top_k; ++k) add_choice(&s, t * a->top_k + k, c, n);
      out_begin(&s.out);
      put(a->dtype, ring_now(&s.out), s.sum, n);
      out_ready(&s.out);
      store(a->dtype, row_at(&a->space, &a->to, size, t, c), ring_now(&s.out), 1, n);
      out_done(&s.out);
    }
  }
  in_close(&s.in);
  out_close(&s.out);
}

/* ---- sums over an expert's slots ---- */

enum { SPAN = 64 }; /* tiles that are summed by themselves: no partial sum is far longer than its terms */

AICORE_KERNEL(moe_expert_sums, moe_expert_sums_arguments) {
  const gm_space sorted = moe_space(a->slots);
  const gm_rows from = moe_rows(a->from, a->cols);
  const int64_t panels = (a->cols - 1) / a->panel + 1, room = a->tile_rows * a->panel;
  ring in = ring_of(ub, 0, 2, (room + MOE_TILE_ROWS) * 4), before = ring_of(ub, 2, 1, a->panel * 4),
       out = ring_of(ub, 0, 1, a->panel * 4);
  const ub_f32 total = ub_alloc_f32(ub, a->panel), part = ub_alloc_f32(ub, a->panel), wide = ub_alloc_f32(ub, room);
  const ub_f32 blocks = ub_alloc_f32(ub, 8 * MOE_TILE_ROWS), words = ub_alloc_f32(ub, 8);
  in_open(&in);
  in_open(&before);
  out_open(&out);
  for (int64_t task = block_index(); task < a->experts * panels; task += block_count()) {
    const int64_t e = task / panels, c = task % panels * a->panel, n = least(a->panel, a->cols - c);
    const int64_t begin = moe_word(words, a->order.first + e * 4, 2), end = s_read_i32(words, 1);
    int64_t added = 0;
    if (a->accumulate && begin == end) continue;
    duplicate(total, 0, a->panel);
    duplicate(part, 0, a->panel);
    for (int64_t r = begin; r < end; r += a->tile_rows) {
      const tile t = tile_of(a->dtype, least(a->tile_rows, end - r), n);
      const ub_f32 raw = ring_now(&in), weights = ub_at_f32(raw, room);
      in_begin(&in);
      load_tile(a->dtype, raw, &sorted, &from, t, r, c);
      if (a->weighted) load_f32(weights, a->order.weight + r * 4, 1, t.rows);
      in_ready(&in);
      const ub_f32 x = values_of(a->dtype, wide, raw, t);
      if (a->weighted) by_rows(ROW_MUL, x, x, weights, blocks, t);
      add_column_sums(part, x, t);
      in_done(&in);
      if (++added % SPAN) continue;
      add(total, total, part, a->panel);
      duplicate(part, 0, a->panel);
    }
    add(total, total, part, a->panel);
    put_sums(&before, &out, total, a->to + (e * a->cols + c) * dtype_bytes(a->to_dtype), a->to_dtype, a->accumulate, n);
  }
  in_close(&in);
  in_close(&before);
  out_close(&out);
}
