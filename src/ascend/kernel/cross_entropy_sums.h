/* Forward's sums over rows of logits, online over chunks of columns, and over the splits of a row. */
#ifndef TIGON_ASCEND_KERNEL_CROSS_ENTROPY_SUMS_H
#define TIGON_ASCEND_KERNEL_CROSS_ENTROPY_SUMS_H

#include "ascend/kernel/cross_entropy_chunk.h"

static const float largest_finite = 3.40282347e38f, shift_low = -1000;

/* Is the moment asked for? */
AICORE bool has_entropy(const cross_entropy_arguments *a) { return a->entropy || has_entropy_gradient(a); }

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
  if (!is_plain(&s->a->map)) logits_of(&s->a->map, part, largest, s->first, s->second, s->third, rows);
  v_max_scalar_f32(part, is_plain(&s->a->map) ? largest : part, -largest_finite, rows);
  sync_pipe(PIPE_V);
  v_sub_f32(shift, reference, part, rows);
  sync_pipe(PIPE_V);
  v_max_scalar_f32(shift, shift, shift_low, rows);
  v_min_scalar_f32(reference, part, largest_finite, rows);
  sync_pipe(PIPE_V);
  if (has_entropy(s->a)) mul(part, sum, shift, rows);
  exponential(shift, shift, rows);
  if (has_entropy(s->a)) v_add_f32(moment, moment, part, rows);
  mul(sum, sum, shift, rows);
  if (has_entropy(s->a)) mul(moment, moment, shift, rows);
}

/* total += the rows' sums of x, which is used up. */
AICORE void add_row_sums(const state *s, row_word total, ub_f32 x, tile t) {
  const ub_f32 part = words_of(&s->w, PART), to = words_of(&s->w, total);
  row_sums(part, x, t);
  v_add_f32(to, to, part, t.rows);
  sync_pipe(PIPE_V);
}

AICORE void sum_chunk(state *s, tile t, int64_t c) {
  const cross_entropy_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch;
  const ub_f32 x = chunk_of(s, t, c), d = s->first, e = s->second;
  ub_f32 z = x;
  row_maxima_kept(words_of(&s->w, PART), d, x, t);
  if (a->argmax) take_columns(s, x, t, c);
  take_labels(s, x, t, c);
  move_reference(s, t.rows);
  if (!is_plain(&a->map)) logits_of(&a->map, z = s->z, x, s->first, s->second, s->third, n);
  by_rows(ROW_SUB, d, z, words_of(&s->w, REFERENCE), e, t);
  exponential(e, d, n);
  if (has_entropy(a)) {
    v_max_scalar_f32(d, d, exp_low, n); /* 0 * -Inf is 0 here */
    sync_pipe(PIPE_V);
    mul(d, d, e, n);
    add_row_sums(s, MOMENT, d, t);
  }
  add_row_sums(s, SUM, e, t);
  if (a->smoothing != 0) {
    if (a->weight) {
      load_weights(s, t, c);
      tile_op(ROW_MUL, d, z, s->third, t, false);
    } else {
      mul_scalar(d, z, 1, n);
    }
    add_row_sums(s, WEIGHTED, d, t);
  }
  chunk_done(s);
}

AICORE void sum_rows(state *s, box b, int64_t rows) {
  const row_words *w = &s->w;
  v_duplicate_f32(words_of(w, LARGEST), -__builtin_inff(), rows);
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
    sum_chunk(s, tile_of(s->a->dtype, rows, least(s->a->w.tile_cols, b.col_end - c)), c);
}

/* ---- forward: a row that is split over cores ---- */

AICORE void hand_over(state *s, box b, int64_t r) {
  const row_word words[SPLIT_WORDS] = {LARGEST, REFERENCE, SUM, MOMENT, WEIGHTED, COLUMN, LABEL_X};
  const cross_entropy_arguments *a = s->a;
  scalar_after_vectors();
  if (s->stored) sync_wait(PIPE_MTE3, PIPE_S, 4);
  for (int k = 0; k < SPLIT_WORDS; ++k) s_write_i32(s->splits, k, s_read_i32(words_of(&s->w, words[k]), 0));
  stores_after_scalar();
  store_f32(a->partials + (r * a->w.splits + b.split) * SPLIT_WORDS * 4, s->splits, 1, SPLIT_WORDS);
  sync_set(PIPE_MTE3, PIPE_S, 4);
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
  exponential(s->shifts, s->shifts, splits);
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

#endif
