/* cross_entropy over rows. Forward finds each row's largest x, its sums of e^(z - reference) and the terms of the options. If a
 * row does not stay on chip, it does so online over chunks of columns. They give the row's outputs and, on request, its
 * gradient. Backward makes the gradient from forward's lse:
 *   dlogits = by * slope * (factor * e^(z - lse) - share * weight), and at the label - minus * weight of the label besides,
 *   and of the entropy's gradient - dentropy * slope * e^(z - lse) * (z - lse + entropy).
 * No mask: tails are cut off by length, and the label's own element is written by the scalar pipe. */
#include "ascend/kernel/cross_entropy_sums.h"

/* ---- the gradient ---- */

/* g *= slope. Of a 16-bit dtype x is widened again, because g has taken its place. */
AICORE void mul_slopes(const state *s, ub_f32 g, ub_f32 raw, tile t) {
  const int64_t n = t.rows * t.pitch;
  const ub_f32 x = values_of(s->a->dtype, s->second, raw, t);
  slopes_of(&s->a->map, s->second, x, s->third, n);
  mul(g, g, s->second, n);
}

/* The rows that do not count, and the labels' own elements. */
AICORE void set_elements(const state *s, ub_f32 g, tile t, int64_t c) {
  for (int64_t i = 0; i < t.rows; ++i)
    if (label_of(&s->w, i) < 0) v_duplicate_f32(ub_at_f32(g, i * t.pitch), 0, t.pitch);
  sync_pipe(PIPE_V);
  if (!has_labels(s, t, c)) return;
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t at = label_column(s, i, t, c);
    if (at >= 0) s_write_f32(g, i * t.pitch + at, gradient_of_label(&s->w, i));
  }
  vectors_after_scalar();
}

/* d = the entropy's gradient over e^(z - reference), of z - reference. */
AICORE void begin_entropy(const state *s, ub_f32 d, ub_f32 z, tile t) {
  v_max_scalar_f32(d, z, exp_low, t.rows * t.pitch); /* 0 * -Inf is 0 here */
  sync_pipe(PIPE_V);
  by_rows(ROW_MUL, d, d, words_of(&s->w, ENTROPY_TIMES), s->first, t);
  by_rows(ROW_ADD, d, d, words_of(&s->w, ENTROPY_PLUS), s->first, t);
}

AICORE void gradient_chunk(state *s, tile t, int64_t r, int64_t c) {
  const cross_entropy_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch;
  const bool f32 = a->dtype == TIGON_F32;
  const ub_f32 x = chunk_of(s, t, c), raw = raw_chunk(s, c), blocks = s->first;
  if (!a->forward && has_labels(s, t, c)) {
    take_labels(s, x, t, c);
    find_labels(&s->w, t.rows);
    vectors_after_scalar();
  }
  out_begin(&s->out);
  const ub_f32 out = ring_now(&s->out), g = f32 ? out : s->z;
  if (!is_plain(&a->map)) logits_of(&a->map, g, x, s->first, s->second, s->third, n);
  by_rows(ROW_SUB, g, is_plain(&a->map) ? x : g, words_of(&s->w, REFERENCE), blocks, t);
  if (has_entropy_gradient(a)) begin_entropy(s, s->second, g, t);
  exponential(g, g, n);
  if (has_entropy_gradient(a)) mul(s->second, s->second, g, n);
  by_rows(ROW_MUL, g, g, words_of(&s->w, SCALE), blocks, t);
  if (a->smoothing != 0) {
    if (a->weight) {
      load_weights(s, t, c);
      tile_op(ROW_SUB, g, g, s->third, t, false);
    } else {
      add_scalar(g, g, -1, n);
    }
    by_rows(ROW_MUL, g, g, words_of(&s->w, SHARE), blocks, t);
  }
  if (has_entropy_gradient(a)) {
    v_add_f32(g, g, s->second, n);
    sync_pipe(PIPE_V);
  }
  if (a->map.cap > 0) mul_slopes(s, g, raw, t);
  chunk_done(s);
  set_elements(s, g, t, c);
  if (!f32) narrow(a->dtype, out, g, n);
  out_ready(&s->out);
  store_tile(a->dtype, &a->space, &a->dlogits, out, t, r, c);
  out_done(&s->out);
}

/* ---- the walk ---- */

AICORE void finish_rows(state *s, box b, int64_t r, int64_t rows) {
  const row_words *w = &s->w;
  v_ln_f32(words_of(w, LOG_SUM), words_of(w, SUM), rows);
  sync_pipe(PIPE_V);
  find_labels(w, rows);
  if (s->stored) sync_wait(PIPE_MTE3, PIPE_S, 4);
  for (int64_t i = 0; i < rows; ++i) finish_row(w, i);
  if (b.split == 0) store_outputs(w, r, rows);
  sync_set(PIPE_MTE3, PIPE_S, 4);
  s->stored = true;
  vectors_after_scalar();
}

/* Backward's words, from the lse that was loaded. */
AICORE void begin_backward(const state *s, int64_t rows) {
  scalar_after_vectors();
  for (int64_t i = 0; i < rows; ++i) {
    const float lse = word_of(&s->w, OUT_LSE, i);
    set_word(&s->w, REFERENCE, i, lse);
    if (label_of(&s->w, i) >= 0) find_scales(&s->w, i, (twofold){lse, 0}, 1, word_of(&s->w, OUT_ENTROPY, i));
  }
  vectors_after_scalar();
}

AICORE void rows_of_tile(state *s, box b, int64_t r, int64_t rows) {
  const cross_entropy_arguments *a = s->a;
  const bool joins = a->forward && !(a->parts & PART_SUMS);
  if (joins && !a->dlogits.data && b.split > 0) return;
  if (a->w.cached) take(s);
  load_words(&s->w, r, rows, a->parts & PART_ROWS);
  if (a->forward && a->parts & PART_SUMS) sum_rows(s, b, rows);
  if (joins) join_row(s, r);
  if (!(a->parts & PART_ROWS)) {
    hand_over(s, b, r);
    return;
  }
  if (a->forward)
    finish_rows(s, b, r, rows);
  else
    begin_backward(s, rows);
  for (int64_t c = b.col; a->dlogits.data && c < b.col_end; c += a->w.tile_cols)
    gradient_chunk(s, tile_of(a->dtype, rows, least(a->w.tile_cols, b.col_end - c)), r, c);
  if (a->w.cached) done(s);
}

AICORE state open_state(ub_arena *ub, const cross_entropy_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const int64_t pitch = round_up(a->w.tile_rows, 8), elements = chunk.rows * chunk.pitch;
  const bool splits = a->forward && a->w.splits > 1;
  state s = {.a = a, .w = {.a = a, .pitch = pitch, .weight_sum = {(float)a->classes, 0}, .inverse = 1}};
  s.next.passes = (a->forward && a->parts & PART_SUMS) + (a->dlogits.data && a->parts & PART_ROWS);
  s.x = ring_of(ub, 0, a->w.cached ? a->w.buffers : 2, tile_bytes(a->dtype, kept));
  s.out = ring_of(ub, 0, 2, a->dlogits.data ? tile_bytes(a->dtype, chunk) : 0);
  s.w.words = ub_alloc_f32(ub, ROW_WORDS * pitch);
  s.w.labels = ub_alloc_f32(ub, index_words(a->rule.dtype) * pitch);
  s.w.weights = ub_alloc_f32(ub, a->weight ? 8 * pitch : 0);
  s.w.argmax = ub_alloc_f32(ub, a->argmax ? 2 * pitch : 0);
  s.w.stats = ub_alloc_f32(ub, a->stats ? STAT_WORDS * pitch : 0);
  s.splits = ub_alloc_f32(ub, splits ? a->w.splits * SPLIT_WORDS : 0);
  s.shifts = ub_alloc_f32(ub, splits ? a->w.splits : 0);
  s.z = ub_alloc_f32(ub, a->dtype == TIGON_F32 && is_plain(&a->map) ? 0 : elements);
  s.first = ub_alloc_f32(ub, work_elements(chunk));
  s.second = ub_alloc_f32(ub, work_elements(chunk));
  s.third = ub_alloc_f32(ub, a->map.cap > 0 || (a->weight && a->smoothing != 0) ? elements : 0);
  v_duplicate_f32(s.w.words, 0, ROW_WORDS * pitch);
  sync_pipe(PIPE_V);
  in_open(&s.x);
  out_open(&s.out);
  return s;
}

enum { TOTALS_AT_ONCE = 16 }; /* which any tile has room for */

/* The numbers that all rows share. */
AICORE void load_shared(state *s) {
  const cross_entropy_arguments *a = s->a;
  const int64_t rest = a->classes - (int64_t)s->w.weight_sum.hi;
  s->w.weight_sum.lo = (float)rest;
  loads_after_vectors();
  if (a->inverse && a->dlogits.data && (a->parts & PART_ROWS)) {
    load_f32(s->first, a->inverse, 1, 1);
    scalar_after_loads();
    s->w.inverse = s_read_f32(s->first, 0);
  }
  twofold sum = {0, 0};
  for (int64_t i = 0; a->weight_sums && i < a->weight_blocks; i += TOTALS_AT_ONCE) {
    const int64_t n = least(TOTALS_AT_ONCE, a->weight_blocks - i);
    loads_after_scalar();
    load_f32(s->second, a->weight_sums + i * TOTAL_WORDS * 4, 1, n * TOTAL_WORDS);
    scalar_after_loads();
    sum = twofold_sum(sum, s_read_total(s->second, n));
  }
  if (a->weight_sums) s->w.weight_sum = sum;
  vectors_after_scalar();
}

AICORE_KERNEL(cross_entropy_rows, cross_entropy_arguments) {
  state s = open_state(ub, a);
  load_shared(&s);
  begin_task(&s.next, &a->w, block_index());
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows)
      rows_of_tile(&s, b, r, least(a->w.tile_rows, b.row_end - r));
  }
  if (s.stored) sync_wait(PIPE_MTE3, PIPE_S, 4);
  in_close(&s.x);
  out_close(&s.out);
}
