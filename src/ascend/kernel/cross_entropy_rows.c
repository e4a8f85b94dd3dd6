/* cross_entropy over rows. Forward finds each row's largest x, its sums of e^(z - reference) and what the options add to them, online
 * over chunks of columns where a row does not stay on chip; from them come the row's outputs and, when asked, its gradient, which
 * backward makes of the lse that forward left:
 *   dlogits = by * slope * (factor * e^(z - lse) - share * weight), and at the label - minus * weight of the label besides.
 * No mask: tails are cut off by length, and the label's own element is written by the scalar pipe. */
#include <math.h>

#include "ascend/kernel/cross_entropy_row.h"

static const float largest_finite = 3.40282347e38f, exp_low = -87.33654f, shift_low = -1000;

typedef struct state {
  const cross_entropy_arguments *a;
  row_words w;
  ring x, out;
  ub_f32 z, first, second, third; /* f32 tiles; of the weights, too: third */
  ub_f32 splits, shifts;          /* what the splits of a row handed over */
  bool stored;                    /* a tile's outputs are on their way */
} state;

/* ---- chunks ---- */

/* x of columns [c, c + t.cols) in f32. chunk_done() ends it. */
AICORE ub_f32 chunk_of(const state *s, tile t, int64_t r, int64_t c) {
  const cross_entropy_arguments *a = s->a;
  if (a->w.cached) return values_of(a->dtype, s->z, ub_at_f32(ring_now(&s->x), c * dtype_bytes(a->dtype) / 4), t);
  in_begin(&s->x);
  load_tile(a->dtype, ring_now(&s->x), &a->space, &a->logits, t, r, c);
  in_ready(&s->x);
  return values_of(a->dtype, s->z, ring_now(&s->x), t);
}
AICORE void chunk_done(state *s) {
  if (!s->a->w.cached) in_done(&s->x);
}

/* The weights of columns [c, c + t.cols), in `third`. */
AICORE void load_weights(const state *s, tile t, int64_t c) {
  loads_after_vectors();
  load_f32(s->third, s->a->weight + (s->a->panel_begin + c) * 4, 1, t.cols);
  sync_set(PIPE_MTE2, PIPE_V, 7);
  sync_wait(PIPE_MTE2, PIPE_V, 7);
  const int64_t filled = round_up(t.cols, 8);
  if (filled < t.pitch) v_duplicate_f32(ub_at_f32(s->third, filled), 0, t.pitch - filled);
  sync_pipe(PIPE_V);
}

/* The label's column in a chunk from c on, -1 when it is elsewhere. */
AICORE int64_t label_column(const state *s, int64_t i, tile t, int64_t c) {
  const int64_t at = label_of(&s->w, i) - s->a->panel_begin - c;
  return label_of(&s->w, i) >= 0 && at >= 0 && at < t.cols ? at : -1;
}
AICORE bool has_labels(const state *s, tile t, int64_t c) {
  for (int64_t i = 0; i < t.rows; ++i)
    if (label_column(s, i, t, c) >= 0) return true;
  return false;
}
AICORE void take_labels(const state *s, ub_f32 x, tile t, int64_t c) {
  if (!has_labels(s, t, c)) return;
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t at = label_column(s, i, t, c);
    if (at >= 0) set_word(&s->w, LABEL_X, i, s_read_f32(x, i * t.pitch + at));
  }
  vectors_after_scalar();
}

/* ---- forward: the sums ---- */

AICORE bool is_larger(float a, float b) { return a > b || (a != a && b == b); }
AICORE bool is_same(float a, float b) { return a == b || (a != a && b != b); }

/* COLUMN of the rows of which a chunk has a larger x than those before: the first step of 64 that has it, then its first lane. */
AICORE void take_columns(const state *s, ub_f32 x, tile t, int64_t c) {
  const int64_t full = t.cols / V_LANES, tail = t.cols % V_LANES;
  for (int64_t i = 0; i < t.rows; ++i) {
    const ub_f32 row = ub_at_f32(x, i * t.pitch), steps = ub_at_f32(s->first, i * t.pitch);
    if (full) v_mask_f32(V_LANES);
    for (int64_t k = 0; k < full; k += WORD_REPEATS)
      v_maximum_r_f32(ub_at_f32(steps, k), ub_at_f32(row, k * V_LANES), (int)least(WORD_REPEATS, full - k), 1, 8);
    sync_pipe(PIPE_V);
    if (tail) v_mask_f32((int)tail);
    if (tail) v_maximum_r_f32(ub_at_f32(steps, full), ub_at_f32(row, full * V_LANES), 1, 1, 8);
  }
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) {
    const float found = word_of(&s->w, PART, i);
    int64_t at = 0;
    if (s_read_i32(words_of(&s->w, COLUMN), i) >= 0 && !is_larger(found, word_of(&s->w, LARGEST, i))) continue;
    while (!is_same(s_read_f32(s->first, i * t.pitch + at), found)) ++at;
    for (at *= V_LANES; !is_same(s_read_f32(x, i * t.pitch + at), found);) ++at;
    s_write_i32(words_of(&s->w, COLUMN), i, (int32_t)(c + at));
  }
  vectors_after_scalar();
}

/* The sums to a reference that is the logit of the largest x so far. */
AICORE void move_reference(const state *s, int64_t rows) {
  const row_words *w = &s->w;
  const ub_f32 largest = words_of(w, LARGEST), reference = words_of(w, REFERENCE), part = words_of(w, PART);
  const ub_f32 sum = words_of(w, SUM), moment = words_of(w, MOMENT), shift = words_of(w, LOG_SUM);
  v_max_f32(largest, part, largest, rows);
  sync_pipe(PIPE_V);
  if (is_plain(s->a))
    then_scale(part, largest, 1, rows);
  else
    logits_of(s->a, part, largest, s->first, s->second, s->third, rows);
  v_max_scalar_f32(part, part, -largest_finite, rows);
  sync_pipe(PIPE_V);
  v_min_scalar_f32(part, part, largest_finite, rows);
  sync_pipe(PIPE_V);
  v_sub_f32(shift, reference, part, rows);
  sync_pipe(PIPE_V);
  v_max_scalar_f32(shift, shift, shift_low, rows);
  then_scale(reference, part, 1, rows);
  then_mul(part, sum, shift, rows);
  then_exp(shift, shift, rows);
  v_add_f32(moment, moment, part, rows);
  v_mul_f32(sum, sum, shift, rows);
  sync_pipe(PIPE_V);
  then_mul(moment, moment, shift, rows);
}

/* total += the rows' sums of x, which is used up. */
AICORE void add_row_sums(const state *s, row_word total, ub_f32 x, tile t) {
  const ub_f32 part = words_of(&s->w, PART), to = words_of(&s->w, total);
  row_sums(part, x, t);
  v_add_f32(to, to, part, t.rows);
  sync_pipe(PIPE_V);
}

AICORE void sum_chunk(state *s, tile t, int64_t r, int64_t c) {
  const cross_entropy_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch;
  const ub_f32 x = chunk_of(s, t, r, c), d = s->first, e = s->second;
  ub_f32 z = x;
  row_maxima_kept(words_of(&s->w, PART), d, x, t);
  if (a->argmax) take_columns(s, x, t, c);
  take_labels(s, x, t, c);
  move_reference(s, t.rows);
  if (!is_plain(a)) logits_of(a, z = s->z, x, s->first, s->second, s->third, n);
  spread(e, words_of(&s->w, REFERENCE), t.rows);
  tile_op(ROW_SUB, d, z, e, t, true);
  then_exp(e, d, n);
  if (a->entropy) {
    v_max_scalar_f32(d, d, exp_low, n); /* 0 * -Inf is 0 here */
    sync_pipe(PIPE_V);
    then_mul(d, d, e, n);
    add_row_sums(s, MOMENT, d, t);
  }
  add_row_sums(s, SUM, e, t);
  if (a->smoothing != 0) {
    if (a->weight) {
      load_weights(s, t, c);
      tile_op(ROW_MUL, d, z, s->third, t, false);
    } else {
      then_scale(d, z, 1, n);
    }
    add_row_sums(s, WEIGHTED, d, t);
  }
  chunk_done(s);
}

AICORE void sum_rows(state *s, box b, int64_t r, int64_t rows) {
  const row_words *w = &s->w;
  v_duplicate_f32(words_of(w, LARGEST), -INFINITY, rows);
  v_duplicate_f32(words_of(w, REFERENCE), -largest_finite, rows);
  v_duplicate_f32(words_of(w, SUM), 0, rows);
  v_duplicate_f32(words_of(w, MOMENT), 0, rows);
  v_duplicate_f32(words_of(w, WEIGHTED), 0, rows);
  v_duplicate_f32(words_of(w, LABEL_X), 0, rows);
  scalar_after_vectors();
  for (int64_t i = 0; i < rows; ++i) s_write_i32(words_of(w, COLUMN), i, -1);
  vectors_after_scalar();
  sync_pipe(PIPE_V);
  for (int64_t c = b.col; c < b.col_end; c += s->a->w.tile_cols)
    sum_chunk(s, tile_of(s->a->dtype, rows, least(s->a->w.tile_cols, b.col_end - c)), r, c);
}

/* ---- forward: a row that is split over cores ---- */

AICORE void hand_over(state *s, box b, int64_t r) {
  const row_word words[SPLIT_WORDS] = {LARGEST, REFERENCE, SUM, MOMENT, WEIGHTED, COLUMN, LABEL_X};
  const cross_entropy_arguments *a = s->a;
  scalar_after_vectors();
  if (s->stored) sync_wait(PIPE_MTE3, PIPE_S, 6);
  for (int k = 0; k < SPLIT_WORDS; ++k) s_write_i32(s->splits, k, s_read_i32(words_of(&s->w, words[k]), 0));
  stores_after_scalar();
  store_f32(a->partials + (r * a->w.splits + b.split) * SPLIT_WORDS * 4, s->splits, 1, SPLIT_WORDS);
  sync_set(PIPE_MTE3, PIPE_S, 6);
  s->stored = true;
  vectors_after_scalar();
}

AICORE float split_word(const state *s, int64_t split, int which) {
  return s_read_f32(s->splits, split * SPLIT_WORDS + which);
}

/* The row's words from those of its splits, added in their order. */
AICORE void join_row(const state *s, int64_t r) {
  const cross_entropy_arguments *a = s->a;
  const row_words *w = &s->w;
  const int64_t splits = a->w.splits;
  load_f32(s->splits, a->partials + r * splits * SPLIT_WORDS * 4, 1, splits * SPLIT_WORDS);
  scalar_after_loads();
  int64_t best = 0;
  float reference = split_word(s, 0, SPLIT_REFERENCE), label = 0;
  for (int64_t i = 0; i < splits; ++i) {
    if (is_larger(split_word(s, i, SPLIT_LARGEST), split_word(s, best, SPLIT_LARGEST))) best = i;
    if (is_larger(split_word(s, i, SPLIT_REFERENCE), reference)) reference = split_word(s, i, SPLIT_REFERENCE);
    label += split_word(s, i, SPLIT_LABEL); /* all others have 0 */
  }
  scalar_after_vectors();
  for (int64_t i = 0; i < splits; ++i) {
    const float shift = split_word(s, i, SPLIT_REFERENCE) - reference;
    s_write_f32(s->shifts, i, shift < shift_low ? shift_low : shift);
  }
  vectors_after_scalar();
  then_exp(s->shifts, s->shifts, splits);
  scalar_after_vectors();
  twofold sum = {0, 0}, moment = {0, 0}, weighted = {0, 0};
  for (int64_t i = 0; i < splits; ++i) {
    const float by = s_read_f32(s->shifts, i), part = split_word(s, i, SPLIT_SUM) * by;
    float shift = split_word(s, i, SPLIT_REFERENCE) - reference;
    if (shift < shift_low) shift = shift_low;
    sum = twofold_add(sum, part);
    moment = twofold_add(moment, split_word(s, i, SPLIT_MOMENT) * by + part * shift);
    weighted = twofold_add(weighted, split_word(s, i, SPLIT_WEIGHTED));
  }
  set_word(w, REFERENCE, 0, reference);
  set_word(w, SUM, 0, sum.hi);
  set_word(w, MOMENT, 0, moment.hi);
  set_word(w, WEIGHTED, 0, weighted.hi);
  set_word(w, LABEL_X, 0, label);
  s_write_i32(words_of(w, COLUMN), 0, s_read_i32(s->splits, best * SPLIT_WORDS + SPLIT_COLUMN));
  vectors_after_scalar();
}

/* ---- the gradient ---- */

/* g *= slope. Of a 16-bit dtype x is widened again, because g has taken its place. */
AICORE void mul_slopes(const state *s, ub_f32 g, ub_f32 raw, tile t) {
  const int64_t n = t.rows * t.pitch;
  const ub_f32 x = values_of(s->a->dtype, s->second, raw, t);
  slopes_of(s->a, s->second, x, s->third, n);
  then_mul(g, g, s->second, n);
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

AICORE void gradient_chunk(state *s, tile t, int64_t r, int64_t c) {
  const cross_entropy_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch;
  const bool f32 = a->dtype == TIGON_F32;
  const ub_f32 x = chunk_of(s, t, r, c), blocks = s->first;
  const ub_f32 raw = ub_at_f32(ring_now(&s->x), a->w.cached ? c * dtype_bytes(a->dtype) / 4 : 0);
  if (!a->forward && has_labels(s, t, c)) {
    take_labels(s, x, t, c);
    find_labels(&s->w, t.rows);
    vectors_after_scalar();
  }
  out_begin(&s->out);
  const ub_f32 out = ring_now(&s->out), g = f32 ? out : s->z;
  if (!is_plain(a)) logits_of(a, g, x, s->first, s->second, s->third, n);
  spread(blocks, words_of(&s->w, REFERENCE), t.rows);
  tile_op(ROW_SUB, g, is_plain(a) ? x : g, blocks, t, true);
  then_exp(g, g, n);
  spread(blocks, words_of(&s->w, SCALE), t.rows);
  tile_op(ROW_MUL, g, g, blocks, t, true);
  if (a->smoothing != 0) {
    if (a->weight) {
      load_weights(s, t, c);
      tile_op(ROW_SUB, g, g, s->third, t, false);
    } else {
      then_shift(g, g, -1, n);
    }
    spread(blocks, words_of(&s->w, SHARE), t.rows);
    tile_op(ROW_MUL, g, g, blocks, t, true);
  }
  if (a->softcap > 0) mul_slopes(s, g, raw, t);
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
  if (s->stored) sync_wait(PIPE_MTE3, PIPE_S, 6);
  for (int64_t i = 0; i < rows; ++i) finish_row(w, i);
  if (b.split == 0) store_outputs(w, r, rows);
  sync_set(PIPE_MTE3, PIPE_S, 6);
  s->stored = true;
  vectors_after_scalar();
}

/* Backward's words, from the lse that was loaded. */
AICORE void begin_backward(const state *s, int64_t rows) {
  scalar_after_vectors();
  for (int64_t i = 0; i < rows; ++i) {
    const float lse = word_of(&s->w, OUT_LSE, i);
    set_word(&s->w, REFERENCE, i, lse);
    if (label_of(&s->w, i) >= 0) find_scales(&s->w, i, (twofold){lse, 0}, 1);
  }
  vectors_after_scalar();
}

AICORE void rows_of_tile(state *s, box b, int64_t r, int64_t rows) {
  const cross_entropy_arguments *a = s->a;
  const bool joins = a->forward && !(a->parts & PART_SUMS);
  if (joins && !a->dlogits.data && b.split > 0) return;
  if (a->w.cached) {
    in_begin(&s->x);
    load_tile(a->dtype, ring_now(&s->x), &a->space, &a->logits, tile_of(a->dtype, rows, a->w.cols), r, 0);
    in_ready(&s->x);
  }
  load_words(&s->w, r, rows, a->parts & PART_ROWS);
  if (a->forward && a->parts & PART_SUMS) sum_rows(s, b, r, rows);
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
  if (a->w.cached) in_done(&s->x);
}

AICORE state open_state(ub_arena *ub, const cross_entropy_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const int64_t pitch = round_up(a->w.tile_rows, 8), elements = chunk.rows * chunk.pitch;
  const bool splits = a->forward && a->w.splits > 1;
  state s = {.a = a, .w = {.a = a, .pitch = pitch, .weight_sum = {(float)a->rule.vocab, 0}, .inverse = 1}};
  s.x = ring_of(ub, 0, a->w.cached ? a->w.buffers : 2, tile_bytes(a->dtype, kept));
  s.out = ring_of(ub, 0, 2, a->dlogits.data ? tile_bytes(a->dtype, chunk) : 0);
  s.w.words = ub_alloc_f32(ub, ROW_WORDS * pitch);
  s.w.labels = ub_alloc_f32(ub, index_words(a->rule.dtype) * pitch);
  s.w.weights = ub_alloc_f32(ub, a->weight ? 8 * pitch : 0);
  s.w.argmax = ub_alloc_f32(ub, a->argmax ? 2 * pitch : 0);
  s.splits = ub_alloc_f32(ub, splits ? a->w.splits * SPLIT_WORDS : 0);
  s.shifts = ub_alloc_f32(ub, splits ? a->w.splits : 0);
  s.z = ub_alloc_f32(ub, a->dtype == TIGON_F32 && is_plain(a) ? 0 : elements);
  s.first = ub_alloc_f32(ub, work_elements(chunk));
  s.second = ub_alloc_f32(ub, work_elements(chunk));
  s.third = ub_alloc_f32(ub, elements);
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
  const int64_t rest = a->rule.vocab - (int64_t)s->w.weight_sum.hi;
  s->w.weight_sum.lo = (float)rest;
  loads_after_vectors();
  if (a->inverse && a->dlogits.data) {
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
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows)
      rows_of_tile(&s, b, r, least(a->w.tile_rows, b.row_end - r));
  }
  if (s.stored) sync_wait(PIPE_MTE3, PIPE_S, 6);
  in_close(&s.x);
  out_close(&s.out);
}
