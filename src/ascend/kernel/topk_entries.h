/* A core at work on the rows of topk_divergence, and what it does with a row's entries. Which entry of a class is the first is found in
 * windows of columns, the chunks of the passes: entries leave their numbers at their columns, the last one first. So the classes are
 * kept chunk by chunk, and a pass goes over them once. */
#ifndef TIGON_ASCEND_KERNEL_TOPK_ENTRIES_H
#define TIGON_ASCEND_KERNEL_TOPK_ENTRIES_H

#include "ascend/kernel/topk_terms.h"

/* A word for each row of a tile. */
typedef enum row_word {
  MOST, /* the largest logit outside, before it is multiplied */
  PART, /* a chunk's part */
  REFERENCE,
  LOG_SUM, /* term of the gradient: e^(times * (z - REFERENCE) - LOG_SUM) * BY */
  BY,
  HARD_LOG_SUM, /* the same of the cross entropy */
  HARD_BY,
  LABEL_X, /* the input of the label's class */
  CLASSES, /* i32: of the support */
  HERE,    /* i32: the first of them, whose columns there are */
  NEXT,    /* i32: the first of those that the pass has not come to */
  SUM,     /* sum of the exponentials outside; two words, as all from here on */
  HARD_SUM = SUM + 2,
  HARD_LSE = HARD_SUM + 2,
  FACTOR = HARD_LSE + 2,
  HARD_FACTOR = FACTOR + 2,
  NUMBERS = HARD_FACTOR + 2, /* topk_row */
  ROW_WORDS = NUMBERS + 10,
} row_word;

typedef struct state {
  const topk_divergence_arguments *a;
  ring in, out;
  ub_f32 words; /* [ROW_WORDS, pitch] */
  loss_words rows;
  int64_t pitch;
  int64_t id_pitch, entry_pitch; /* pitches of a row's entries, in words */
  ub_f32 ids, target, order,
      values; /* order: i32, entries of the classes by chunks; values: their logits, then gradients */
  ub_f32 x, d, near, far, spread_to; /* f32 tiles; d: of 16-bit dtypes, near and far: of a cap */
  bool out_of_range;
} state;

AICORE ub_f32 words_of(const state *s, int which) { return ub_at_f32(s->words, which * s->pitch); }
AICORE float word_of(const state *s, int which, int64_t i) { return s_read_f32(words_of(s, which), i); }
AICORE void set_word(const state *s, int which, int64_t i, float value) { s_write_f32(words_of(s, which), i, value); }
AICORE twofold number_of(const state *s, int which, int64_t i) {
  return (twofold){word_of(s, which, i), word_of(s, which + 1, i)};
}
AICORE void set_number(const state *s, int which, int64_t i, twofold value) {
  set_word(s, which, i, value.hi);
  set_word(s, which + 1, i, value.lo);
}
AICORE int64_t count_of(const state *s, int which, int64_t i) { return s_read_i32(words_of(s, which), i); }
AICORE void set_count(const state *s, int which, int64_t i, int64_t value) {
  s_write_i32(words_of(s, which), i, (int32_t)value);
}
AICORE topk_row row_of(const state *s, int64_t i) {
  return (topk_row){number_of(s, NUMBERS, i), number_of(s, NUMBERS + 2, i), number_of(s, NUMBERS + 4, i),
                    number_of(s, NUMBERS + 6, i), number_of(s, NUMBERS + 8, i)};
}
AICORE void set_row(const state *s, int64_t i, const topk_row *row) {
  set_number(s, NUMBERS, i, row->lse);
  set_number(s, NUMBERS + 2, i, row->outside);
  set_number(s, NUMBERS + 4, i, row->mean);
  set_number(s, NUMBERS + 6, i, row->target_lse);
  set_number(s, NUMBERS + 8, i, row->tail);
}

AICORE ub_f32 of_row(const state *s, ub_f32 entries, int64_t i) { return ub_at_f32(entries, i * s->entry_pitch); }
AICORE int64_t class_at(const state *s, int64_t i, int64_t j) {
  return s_read_index(s->a->id_dtype, ub_at_f32(s->ids, i * s->id_pitch), j);
}
/* Class n of the support: its column, and the teacher's entry. */
AICORE int64_t entry_at(const state *s, int64_t i, int64_t n) { return s_read_i32(of_row(s, s->order, i), n); }
AICORE int64_t column_at(const state *s, int64_t i, int64_t n) {
  return class_at(s, i, entry_at(s, i, n)) - s->a->rows.panel_begin;
}
AICORE float target_at(const state *s, int64_t i, int64_t n) {
  return s_read_f32(of_row(s, s->target, i), entry_at(s, i, n));
}
AICORE float value_at(const state *s, int64_t i, int64_t n) { return s_read_f32(of_row(s, s->values, i), n); }
AICORE void set_value(const state *s, int64_t i, int64_t n, float value) {
  s_write_f32(of_row(s, s->values, i), n, value);
}
AICORE bool row_counts_here(const state *s, int64_t i) { return row_counts(&s->a->rows, &s->rows, i); }

AICORE void load_entries(const state *s, int64_t r, int64_t rows) {
  const topk_divergence_arguments *a = s->a;
  const bool f32 = a->target_dtype == TIGON_F32;
  const tile of_ids = tile_of(TIGON_F32, rows, a->k * index_words(a->id_dtype)),
             t = tile_of(a->target_dtype, rows, a->k);
  if (a->k == 0) return;
  loads_after_scalar();
  loads_after_vectors();
  load_tile(TIGON_F32, s->ids, &a->space, &a->ids, of_ids, r, 0);
  load_tile(a->target_dtype, f32 ? s->target : s->values, &a->space, &a->target, t, r, 0);
  scalar_after_loads();
  vectors_after_scalar();
  if (!f32) widen(a->target_dtype, s->target, s->values, rows * t.pitch);
}

/* Those of row i from class `first` to `last` come after `classes` others; how many there are then. */
AICORE int64_t find_between(const state *s, int64_t i, ub_f32 marks, int64_t first, int64_t last, int64_t classes) {
  const topk_divergence_arguments *a = s->a;
  for (int64_t begin = first; begin < last; begin += a->w.tile_cols) {
    const int64_t end = least(last, begin + a->w.tile_cols);
    for (int64_t j = a->k - 1; j >= 0; --j) {
      const int64_t v = class_at(s, i, j);
      if (v >= begin && v < end) s_write_i32(marks, v - begin, (int32_t)j);
    }
    for (int64_t j = 0; j < a->k; ++j) {
      const int64_t v = class_at(s, i, j);
      if (v < begin || v >= end || s_read_i32(marks, v - begin) != j) continue;
      s_write_i32(of_row(s, s->order, i), classes, (int32_t)j);
      ++classes;
    }
  }
  return classes;
}

/* The classes of row i: first those whose columns there are. `marks` has room for the columns of a chunk. */
AICORE void find_classes(state *s, int64_t i, ub_f32 marks) {
  const topk_divergence_arguments *a = s->a;
  const int64_t first = a->rows.panel_begin, last = first + a->w.cols;
  int64_t classes = 0, here = 0;
  for (int64_t j = 0; j < a->k && a->flags; ++j) {
    const int64_t v = class_at(s, i, j);
    s->out_of_range = s->out_of_range || v < 0 || v >= a->vocab;
  }
  if (row_counts_here(s, i)) {
    here = find_between(s, i, marks, first, last, 0);
    classes = find_between(s, i, marks, 0, first, here);
    classes = find_between(s, i, marks, last, a->vocab, classes);
  }
  set_count(s, HERE, i, here);
  set_count(s, CLASSES, i, classes);
}

/* The classes of row i that a chunk has, from NEXT on. */
AICORE int64_t end_of_chunk(const state *s, int64_t i, tile t, int64_t c) {
  int64_t n = count_of(s, NEXT, i);
  while (n < count_of(s, HERE, i) && column_at(s, i, n) < c + t.cols) ++n;
  return n;
}
/* The pass has done with a chunk. */
AICORE void leave_chunk(const state *s, tile t, int64_t c) {
  for (int64_t i = 0; i < t.rows; ++i) set_count(s, NEXT, i, end_of_chunk(s, i, t, c));
}
/* Where class n is in an f32 tile. */
AICORE int64_t place_of(const state *s, int64_t i, int64_t n, tile t, int64_t c) {
  return i * t.pitch + column_at(s, i, n) - c;
}
AICORE void hide_classes(const state *s, tile t, int64_t c, bool keep) {
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t end = end_of_chunk(s, i, t, c);
    for (int64_t n = count_of(s, NEXT, i); n < end; ++n) {
      const int64_t at = place_of(s, i, n, t, c);
      if (keep) set_value(s, i, n, s_read_f32(s->x, at));
      s_write_f32(s->x, at, MINUS_INFINITY);
    }
  }
}

#endif
