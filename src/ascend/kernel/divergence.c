/* divergence over rows. Forward goes over a row for its largest logits, for the sums of their exponentials, for the terms, and
 * on request for the gradient. Backward goes over it only for the gradient, because it gets the row's numbers. A row stays on
 * chip meanwhile, or comes by in chunks each time. It is not split over cores: a batch has many rows. What a row comes to is the
 * scalar pipe's work. */
#include "ascend/kernel/divergence_terms.h"

AICORE bool is_cosine(const state *s) { return s->a->kind == TIGON_DIVERGENCE_COSINE; }

/* ---- a chunk in each of the passes over a row ---- */

typedef enum pass { PASS_LARGEST, PASS_SUMS, PASS_TERMS, PASS_SLOPES } pass;

AICORE bool is_hard(const state *s) { return s->a->rows.hard != 0; }

AICORE void keep_largest(const state *s, int word, ub_f32 x, tile t) {
  row_maxima_kept(words_of(s, PART), s->work[SECOND], x, t);
  v_max_f32(words_of(s, word), words_of(s, word), words_of(s, PART), t.rows);
  sync_pipe(PIPE_V);
}

/* Finds the labels whose columns the chunk has. */
AICORE void find_labels(const state *s, ub_f32 x, tile t, int64_t c) {
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t at = class_column(&s->a->rows, &s->rows, i, s->a->w.cols) - c;
    if (at >= 0 && at < t.cols) set_word(s, LABEL_X, i, s_read_f32(x, i * t.pitch + at));
  }
  vectors_after_scalar();
}

AICORE void find_largest(const state *s, int side, tile all, int64_t c) {
  const tile t = known_of(s, side, all, c);
  const ub_f32 x = values_of(s->a->dtype, s->work[LOG_INPUT], raw_of(s, side, c), t);
  if (t.cols == 0) return;
  if (is_hard(s) && side == 0) find_labels(s, x, t, c);
  if (is_hard(s) && side == 0) keep_largest(s, HARD_REFERENCE, x, t);
  if (is_cosine(s)) absolute(s->work[FIRST], x, t.rows * t.pitch);
  keep_largest(s, REFERENCE + side, is_cosine(s) ? s->work[FIRST] : x, t);
}

AICORE void add_exponentials(const state *s, int side, tile t, int64_t c) {
  const ub_f32 e = s->work[LOG_INPUT];
  const tile known = known_of(s, side, t, c);
  if (known.cols == 0) return;
  less_reference(s, e, side, t, c);
  exponential(e, e, t.rows * t.pitch);
  add_row_sums(s, SUM + side, e, known);
}
AICORE void add_hard_exponentials(const state *s, tile t, int64_t c) {
  const ub_f32 e = s->work[LOG_INPUT];
  less_word(s, e, 0, s->a->hard_map.times, HARD_REFERENCE, t, c);
  exponential(e, e, t.rows * t.pitch);
  add_row_sums(s, HARD_SUM, e, t);
}

/* d = the elements of a row of cosine over their size. */
AICORE void scaled(const state *s, ub_f32 d, int side, tile t, int64_t c) {
  const ub_f32 x = elements_of(s, d, side, t, c);
  by_rows(ROW_MUL, d, x, words_of(s, REFERENCE + side), s->work[SPREAD], t);
  put_missing(s, d, side, t, c, 0);
}

AICORE void add_products(const state *s, tile t, int64_t c) {
  const ub_f32 x = s->work[LOG_INPUT], y = s->work[LOG_TARGET], product = s->work[FIRST];
  const int64_t n = t.rows * t.pitch;
  scaled(s, x, 0, t, c);
  scaled(s, y, 1, t, c);
  mul(product, x, y, n);
  add_row_sums(s, MEAN, product, t);
  mul(product, x, x, n);
  add_row_sums(s, SUM, product, t);
  mul(product, y, y, n);
  add_row_sums(s, SUM_OF_TARGET, product, t);
}

AICORE void find_turns(const state *s, ub_f32 d, tile t, int64_t c) {
  const ub_f32 x = s->work[LOG_INPUT], y = s->work[LOG_TARGET], spread_to = s->work[SPREAD];
  scaled(s, x, 0, t, c);
  scaled(s, y, 1, t, c);
  by_rows(ROW_MUL, x, x, words_of(s, OF_INPUT), spread_to, t);
  by_rows(ROW_MUL, y, y, words_of(s, OF_TARGET), spread_to, t);
  sub(d, x, y, t.rows * t.pitch);
  by_rows(ROW_MUL, d, d, words_of(s, REFERENCE), spread_to, t);
}

/* Has row i no gradient? */
AICORE bool is_empty(const state *s, int64_t i) {
  if (!row_counts(&s->a->rows, &s->rows, i)) return true;
  return is_cosine(s) && (word_of(s, LOG_SUM, i) == 0 || word_of(s, LOG_SUM_OF_TARGET, i) == 0);
}

/* d += the cross entropy's gradient, of e^(logit - lse), less 1 in the label's class. */
AICORE void add_hard_slopes(const state *s, ub_f32 d, tile t, int64_t c) {
  const ub_f32 h = s->work[LOG_INPUT], spread_to = s->work[SPREAD];
  const int64_t n = t.rows * t.pitch;
  less_word(s, h, 0, s->a->hard_map.times, HARD_REFERENCE, t, c);
  by_rows(ROW_SUB, h, h, words_of(s, HARD_LOG_SUM), spread_to, t);
  exponential(h, h, n);
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t at = class_column(&s->a->rows, &s->rows, i, s->a->w.cols) - c;
    if (at >= 0 && at < t.cols) s_write_f32(h, i * t.pitch + at, s_read_f32(h, i * t.pitch + at) - 1);
  }
  vectors_after_scalar();
  by_rows(ROW_MUL, h, h, words_of(s, HARD_BY), spread_to, t);
  add(d, d, h, n);
}

/* d *= the slope of the input's cap. */
AICORE void mul_slopes(const state *s, ub_f32 d, tile t, int64_t c) {
  const ub_f32 slope = s->work[LOG_INPUT], x = values_of(s->a->dtype, slope, raw_of(s, 0, c), t);
  slopes_of(&s->a->map[0], slope, x, s->work[FIRST], t.rows * t.pitch);
  mul(d, d, slope, t.rows * t.pitch);
}

/* `soft`: rows that have no gradient of the divergence; else those that have none at all. */
AICORE void clear_rows(const state *s, ub_f32 d, tile t, bool soft) {
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i)
    if (soft ? is_empty(s, i) : !row_counts(&s->a->rows, &s->rows, i))
      v_duplicate_f32(ub_at_f32(d, i * t.pitch), 0, t.pitch);
  sync_pipe(PIPE_V);
}

AICORE void store_slopes(state *s, tile t, int64_t r, int64_t c) {
  const divergence_arguments *a = s->a;
  const bool f32 = a->dtype == TIGON_F32;
  out_begin(&s->out);
  const ub_f32 out = ring_now(&s->out), d = f32 ? out : s->work[SECOND];
  if (is_cosine(s))
    find_turns(s, d, t, c);
  else
    find_slopes(s, d, t, c);
  by_rows(ROW_MUL, d, d, words_of(s, BY), s->work[SPREAD], t);
  clear_rows(s, d, t, true);
  if (is_hard(s)) add_hard_slopes(s, d, t, c);
  if (a->map[0].cap > 0) mul_slopes(s, d, t, c);
  if (is_hard(s) || a->map[0].cap > 0) clear_rows(s, d, t, false);
  if (!f32) narrow(a->dtype, out, d, t.rows * t.pitch);
  out_ready(&s->out);
  store_tile(a->dtype, &a->space, &a->dinput, out, t, r, c);
  out_done(&s->out);
}

AICORE void chunk(state *s, pass now, tile t, int64_t r, int64_t c) {
  for (int side = 0; side < 2; ++side) {
    if (now == PASS_LARGEST && (is_cosine(s) || has_logits(s, side))) find_largest(s, side, t, c);
    if (now == PASS_SUMS && !is_cosine(s) && has_logits(s, side)) add_exponentials(s, side, t, c);
  }
  if (now == PASS_SUMS && is_cosine(s)) add_products(s, t, c);
  if (now == PASS_SUMS && is_hard(s)) add_hard_exponentials(s, t, c);
  if (now == PASS_TERMS) add_terms(s, t, c);
  if (now == PASS_SLOPES) store_slopes(s, t, r, c);
}

AICORE void load_pair(state *s, tile t, int64_t r, int64_t c) {
  const divergence_arguments *a = s->a;
  const tile known = known_of(s, 1, t, c);
  in_begin(&s->in.in);
  load_tile(a->dtype, ring_now(&s->in.in), &a->space, &a->input, t, r, c);
  const ub_f32 target = ub_at_f32(ring_now(&s->in.in), s->in.apart);
  if (known.cols > 0) load_tile(a->dtype, target, &a->space, &a->target, known, r, c);
  in_ready(&s->in.in);
}

AICORE void go_over(state *s, pass now, box b, int64_t r, int64_t rows) {
  const walk *w = &s->a->w;
  for (int64_t c = b.col; c < b.col_end; c += w->tile_cols) {
    const tile t = tile_of(s->a->dtype, rows, least(w->tile_cols, b.col_end - c));
    if (!w->cached) load_pair(s, t, r, c);
    chunk(s, now, t, r, c);
    if (!w->cached) in_done(&s->in.in);
  }
}

/* ---- rows on the scalar pipe ---- */

/* 2^-k of a number about 2^k, for -126 <= k <= 126; 1 of 0 and of what is not finite. */
AICORE float scale_down(float size) {
  float down = 1;
  if (!(size > 0) || !is_finite(size)) return 1;
  for (int64_t k = 64; k > 0; k /= 2) {
    const float power = power_of_two(k);
    if (size >= power && down * power_of_two(-k) > 0) size *= power_of_two(-k), down *= power_of_two(-k);
    if (size * power <= 1 && down * power <= 0x1p126f) size *= power, down *= power;
  }
  return down;
}

/* An element becomes a logit: capped, and `times` as large. */
AICORE void map_word(const state *s, int word, const logit_map *map, float times, int64_t rows) {
  const ub_f32 x = words_of(s, word);
  if (map->cap > 0) logits_of(map, x, x, s->work[FIRST], s->work[SECOND], s->work[SPREAD], rows);
  mul_scalar(x, x, times, rows);
}

/* After the first pass: the references, in units of a logit; of cosine the powers of two. */
AICORE void finish_largest(const state *s, int64_t rows) {
  for (int side = 0; side < 2; ++side)
    if (is_cosine(s) || has_logits(s, side))
      map_word(s, REFERENCE + side, &s->a->map[side], is_cosine(s) ? 1 : s->a->times[side], rows);
  if (is_hard(s)) map_word(s, HARD_REFERENCE, &s->a->map[0], s->a->hard_map.times, rows);
  scalar_after_vectors();
  for (int64_t i = 0; i < rows; ++i)
    for (int side = 0; side < 2; ++side) {
      if (is_cosine(s))
        set_word(s, REFERENCE + side, i, scale_down(word_of(s, REFERENCE + side, i)));
      else if (!has_logits(s, side))
        set_word(s, REFERENCE + side, i, 0);
    }
  vectors_after_scalar();
}

/* After the second. A sum to a reference that is not finite has no meaning, and the log-sum-exp is the reference. */
AICORE void finish_sums(const state *s, int64_t rows) {
  for (int side = 0; side < 2; ++side) {
    if (is_cosine(s))
      v_sqrt_f32(words_of(s, LOG_SUM + side), words_of(s, SUM + side), rows);
    else
      v_ln_f32(words_of(s, LOG_SUM + side), words_of(s, SUM + side), rows);
  }
  if (is_hard(s)) v_ln_f32(words_of(s, HARD_LOG_SUM), words_of(s, HARD_SUM), rows);
  scalar_after_vectors();
  for (int64_t i = 0; i < rows; ++i)
    if (!is_finite(word_of(s, HARD_REFERENCE, i))) set_word(s, HARD_LOG_SUM, i, 0);
  for (int64_t i = 0; i < rows; ++i)
    for (int side = 0; side < 2 && !is_cosine(s); ++side)
      if (!has_logits(s, side) || !is_finite(word_of(s, REFERENCE + side, i))) set_word(s, LOG_SUM + side, i, 0);
  vectors_after_scalar();
}

/* Row i's numbers for backward, in `stats`, and its loss. */
AICORE void finish_row(const state *s, int64_t i) {
  float stats[LOSS_STATS] = {0, 0, 0}, loss = 0;
  twofold lse = {0, 0}, entropy = {0, 0};
  if (row_counts(&s->a->rows, &s->rows, i)) {
    for (int side = 0; side < 2; ++side)
      stats[side] = is_cosine(s) ? word_of(s, LOG_SUM + side, i)
                                 : word_of(s, REFERENCE + side, i) + word_of(s, LOG_SUM + side, i);
    stats[2] = word_of(s, MEAN, i);
    loss = word_of(s, LOSS, i);
    if (is_cosine(s)) {
      stats[2] = stats[0] == 0 || stats[1] == 0 ? 0 : stats[2] / stats[0] / stats[1];
      loss = 1 - stats[2];
      for (int side = 0; side < 2; ++side) stats[side] /= word_of(s, REFERENCE + side, i);
    }
    if (is_hard(s)) {
      lse = two_sum(word_of(s, HARD_REFERENCE, i), word_of(s, HARD_LOG_SUM, i));
      entropy = twofold_difference(lse, logit_of(&s->a->hard_map, word_of(s, LABEL_X, i)).z);
    }
  }
  for (int k = 0; k < LOSS_STATS; ++k) s_write_f32(s->rows.stats, i * LOSS_STATS + k, stats[k]);
  if (s->a->rows.hard_lse) s_write_f32(s->rows.hard_lse, i, lse.hi);
  set_losses(&s->a->rows, &s->rows, i, (twofold){loss, 0}, entropy);
}

/* What makes row i's gradient, from its numbers in `stats` where cosine or backward has them. */
AICORE void find_factors(const state *s, int64_t i) {
  const divergence_arguments *a = s->a;
  const ub_f32 stats = ub_at_f32(s->rows.stats, i * LOSS_STATS);
  const twofold by = row_factor(&a->rows, &s->rows, i, a->rows.grad);
  if (is_hard(s)) set_word(s, HARD_BY, i, row_factor(&a->rows, &s->rows, i, a->rows.hard_grad).hi);
  if (is_hard(s) && a->rows.backward) {
    set_word(s, HARD_REFERENCE, i, s_read_f32(s->rows.hard_lse, i));
    set_word(s, HARD_LOG_SUM, i, 0);
  }
  if (!is_cosine(s)) {
    for (int side = 0; side < 2 && a->rows.backward; ++side) {
      set_word(s, REFERENCE + side, i, s_read_f32(stats, side));
      set_word(s, LOG_SUM + side, i, 0);
    }
    set_word(s, OFF, i, s_read_f32(stats, 2));
    set_word(s, BY, i, by.hi);
    return;
  }
  float down[2], size[2];
  for (int side = 0; side < 2; ++side) {
    const float norm = s_read_f32(stats, side);
    down[side] = scale_down(norm);
    size[side] = norm * down[side];
    set_word(s, REFERENCE + side, i, down[side]);
    set_word(s, LOG_SUM + side, i, norm);
  }
  set_word(s, OF_INPUT, i, s_read_f32(stats, 2) / size[0]);
  set_word(s, OF_TARGET, i, 1 / size[1]);
  set_word(s, BY, i, by.hi / size[0]);
}

AICORE void begin_rows(const state *s) {
  const float least_of_all = is_cosine(s) ? 0 : -__builtin_inff();
  v_duplicate_f32(words_of(s, REFERENCE), least_of_all, 2 * s->pitch);
  v_duplicate_f32(words_of(s, HARD_REFERENCE), -__builtin_inff(), s->pitch);
  v_duplicate_f32(words_of(s, SUM), 0, (LOG_SUM - SUM) * s->pitch);
  v_duplicate_f32(words_of(s, LOSS), 0, 2 * s->pitch);
  sync_pipe(PIPE_V);
}

AICORE void rows_of_tile(state *s, box b, int64_t r, int64_t rows) {
  const divergence_arguments *a = s->a;
  if (a->w.cached) load_pair(s, tile_of(a->dtype, rows, a->w.cols), r, 0);
  load_losses(&a->rows, &s->rows, r, rows);
  if (!a->rows.backward) {
    const bool any = is_cosine(s) || has_logits(s, 0) || has_logits(s, 1);
    begin_rows(s);
    if (any) go_over(s, PASS_LARGEST, b, r, rows);
    finish_largest(s, rows);
    if (any) go_over(s, PASS_SUMS, b, r, rows);
    finish_sums(s, rows);
    if (!is_cosine(s)) go_over(s, PASS_TERMS, b, r, rows);
    scalar_after_vectors();
    for (int64_t i = 0; i < rows; ++i) finish_row(s, i);
    store_losses(&a->rows, &s->rows, r, rows);
  }
  if (a->dinput.data) {
    for (int64_t i = 0; i < rows; ++i) find_factors(s, i);
    vectors_after_scalar();
    go_over(s, PASS_SLOPES, b, r, rows);
    scalar_after_vectors();
  } else {
    vectors_after_scalar();
  }
  if (a->w.cached) in_done(&s->in.in);
}

AICORE state open_state(ub_arena *ub, const divergence_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  state s = {.a = a};
  s.pitch = round_up(a->w.tile_rows, 8);
  s.in = pair_of(ub, 0, a->w.cached ? a->w.buffers : 2, a->dtype, kept);
  s.out = ring_of(ub, 0, 2, a->dinput.data ? tile_bytes(a->dtype, chunk) : 0);
  s.words = ub_alloc_f32(ub, ROW_WORDS * s.pitch);
  for (int i = 0; i < SPREAD; ++i) s.work[i] = ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  s.work[SPREAD] = ub_alloc_f32(ub, work_elements(chunk));
  duplicate(s.words, 0, ROW_WORDS * s.pitch);
  /* Columns that no load writes are worked on before they are put right. */
  if (a->target_cols < a->w.cols) duplicate(s.in.in.start, 0, s.in.in.count * s.in.in.elements);
  scalar_after_vectors();
  s.rows = open_losses(ub, &a->rows, s.pitch);
  in_open(&s.in.in);
  out_open(&s.out);
  return s;
}

AICORE_KERNEL(divergence, divergence_arguments) {
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows)
      rows_of_tile(&s, b, r, least(a->w.tile_rows, b.row_end - r));
  }
  in_close(&s.in.in);
  out_close(&s.out);
}
