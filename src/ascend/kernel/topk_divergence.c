/* topk_divergence over rows. Vectors find the largest logit outside of the support, the sum of exponentials there and the gradient there, a
 * pass over the row for each. The scalar pipe works the support out, in two floats. It reads logits of the support out of the f32
 * tile of a pass, where it puts -Inf in their place. A row is not split over cores: a batch has many rows. */
#include "ascend/kernel/bits.h"
#include "ascend/kernel/topk_entries.h"

typedef enum pass { PASS_LARGEST, PASS_SUMS, PASS_GRADIENT } pass;

/* ---- a chunk in each of the passes over a row ---- */

AICORE ub_f32 raw_of(const state *s, int64_t c) {
  return ub_at_f32(ring_now(&s->in), s->a->w.cached ? c * dtype_bytes(s->a->dtype) / 4 : 0);
}

AICORE bool is_hard(const state *s) { return s->a->rows.hard != 0; }

/* Where row i's label is in an f32 tile; -1 where it is not. */
AICORE int64_t place_of_label(const state *s, int64_t i, tile t, int64_t c) {
  const int64_t at = class_column(&s->a->rows, &s->rows, i, s->a->w.cols) - c;
  return at >= 0 && at < t.cols ? i * t.pitch + at : -1;
}

AICORE void find_largest(const state *s, tile t, int64_t c) {
  const int64_t n = t.rows * t.pitch;
  if (s->a->dtype == TIGON_F32)
    mul_scalar(s->x, raw_of(s, c), 1, n);
  else
    widen(s->a->dtype, s->x, raw_of(s, c), n);
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t at = place_of_label(s, i, t, c);
    if (at >= 0) set_word(s, LABEL_X, i, s_read_f32(s->x, at));
  }
  hide_classes(s, t, c, true);
  vectors_after_scalar();
  row_maxima(words_of(s, PART), s->x, t);
  v_max_f32(words_of(s, MOST), words_of(s, MOST), words_of(s, PART), t.rows);
  sync_pipe(PIPE_V);
}

/* s->x = (logits - REFERENCE) * times */
AICORE void less_reference(const state *s, float times, tile t, int64_t c) {
  const int64_t n = t.rows * t.pitch;
  ub_f32 x = values_of(s->a->dtype, s->x, raw_of(s, c), t);
  if (s->a->map.cap > 0) {
    logits_of(&s->a->map, s->x, x, s->near, s->far, s->spread_to, n);
    x = s->x;
  }
  by_rows(ROW_SUB, s->x, x, words_of(s, REFERENCE), s->spread_to, t);
  if (times != 1) mul_scalar(s->x, s->x, times, n);
}

AICORE void add_exponentials(const state *s, float times, int sum, tile t, int64_t c) {
  less_reference(s, times, t, c);
  scalar_after_vectors();
  hide_classes(s, t, c, false);
  vectors_after_scalar();
  exponential(s->x, s->x, t.rows * t.pitch);
  row_sums(words_of(s, PART), s->x, t);
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) set_number(s, sum, i, twofold_add(number_of(s, sum, i), word_of(s, PART, i)));
  vectors_after_scalar();
}

/* The gradients of the support's logits, in place of those, whose f32 values `x` has. */
AICORE void find_gradients(const state *s, ub_f32 x, tile t, int64_t c) {
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t end = end_of_chunk(s, i, t, c);
    const topk_row row = row_of(s, i);
    for (int64_t n = count_of(s, NEXT, i); n < end; ++n) {
      const float logit = s_read_f32(x, place_of(s, i, n, t, c));
      const topk_element e = element_of(s->a, &row, logit, target_at(s, i, n));
      twofold d = twofold_mul(number_of(s, FACTOR, i), gradient_of(s->a, &row, &e));
      if (is_hard(s)) {
        twofold p = twofold_exp(twofold_difference(mapped(&s->a->hard_map, logit), number_of(s, HARD_LSE, i)));
        if (place_of(s, i, n, t, c) == place_of_label(s, i, t, c)) p = twofold_add(p, -1);
        d = twofold_sum(d, twofold_mul(number_of(s, HARD_FACTOR, i), p));
      }
      if (s->a->map.cap > 0) d = twofold_mul(d, logit_of(&s->a->map, logit).slope);
      set_value(s, i, n, d.hi);
    }
  }
}
AICORE void put_gradients(const state *s, ub_f32 d, tile t, int64_t c) {
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t end = end_of_chunk(s, i, t, c);
    for (int64_t n = count_of(s, NEXT, i); n < end; ++n) s_write_f32(d, place_of(s, i, n, t, c), value_at(s, i, n));
  }
}

/* d += the cross entropy's gradient, of e^(logit - lse), less 1 in the label's class. */
AICORE void add_hard_gradients(const state *s, ub_f32 d, tile t, int64_t c) {
  const int64_t n = t.rows * t.pitch;
  less_reference(s, s->a->hard_map.times, t, c);
  by_rows(ROW_SUB, s->x, s->x, words_of(s, HARD_LOG_SUM), s->spread_to, t);
  exponential(s->x, s->x, n);
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t at = place_of_label(s, i, t, c);
    if (at >= 0) s_write_f32(s->x, at, s_read_f32(s->x, at) - 1);
  }
  vectors_after_scalar();
  by_rows(ROW_MUL, s->x, s->x, words_of(s, HARD_BY), s->spread_to, t);
  add(d, d, s->x, n);
}

/* d *= the slope of the cap. */
AICORE void mul_slopes(const state *s, ub_f32 d, tile t, int64_t c) {
  const ub_f32 x = values_of(s->a->dtype, s->x, raw_of(s, c), t);
  slopes_of(&s->a->map, s->x, x, s->near, t.rows * t.pitch);
  mul(d, d, s->x, t.rows * t.pitch);
}

AICORE void store_gradient(state *s, tile t, int64_t r, int64_t c) {
  const topk_divergence_arguments *a = s->a;
  const bool f32 = a->dtype == TIGON_F32;
  const int64_t n = t.rows * t.pitch;
  const ub_f32 x = values_of(a->dtype, s->x, raw_of(s, c), t);
  scalar_after_vectors();
  find_gradients(s, x, t, c);
  vectors_after_scalar();
  less_reference(s, a->map.times, t, c);
  by_rows(ROW_SUB, s->x, s->x, words_of(s, LOG_SUM), s->spread_to, t);
  exponential(s->x, s->x, n);
  out_begin(&s->out);
  const ub_f32 out = ring_now(&s->out), d = f32 ? out : s->d;
  by_rows(ROW_MUL, d, s->x, words_of(s, BY), s->spread_to, t);
  unless_0(d, s->x, s->spread_to, n);
  if (is_hard(s)) add_hard_gradients(s, d, t, c);
  if (a->map.cap > 0) mul_slopes(s, d, t, c);
  scalar_after_vectors();
  put_gradients(s, d, t, c);
  vectors_after_scalar();
  for (int64_t i = 0; i < t.rows; ++i)
    if (!row_counts_here(s, i)) v_duplicate_f32(ub_at_f32(d, i * t.pitch), 0, t.pitch);
  sync_pipe(PIPE_V);
  if (!f32) narrow(a->dtype, out, d, n);
  out_ready(&s->out);
  store_tile(a->dtype, &a->space, &a->dinput, out, t, r, c);
  out_done(&s->out);
}

AICORE void load_input(const state *s, tile t, int64_t r, int64_t c) {
  in_begin(&s->in);
  load_tile(s->a->dtype, ring_now(&s->in), &s->a->space, &s->a->input, t, r, c);
  in_ready(&s->in);
}

AICORE void go_over(state *s, pass now, int64_t r, int64_t rows) {
  const walk *w = &s->a->w;
  for (int64_t i = 0; i < rows; ++i) set_count(s, NEXT, i, 0);
  for (int64_t c = 0; c < w->cols; c += w->tile_cols) {
    const tile t = tile_of(s->a->dtype, rows, least(w->tile_cols, w->cols - c));
    if (!w->cached) load_input(s, t, r, c);
    if (now == PASS_LARGEST) find_largest(s, t, c);
    if (now == PASS_SUMS) add_exponentials(s, s->a->map.times, SUM, t, c);
    if (now == PASS_SUMS && is_hard(s)) add_exponentials(s, s->a->hard_map.times, HARD_SUM, t, c);
    if (now == PASS_GRADIENT) store_gradient(s, t, r, c);
    leave_chunk(s, t, c);
    if (!w->cached) in_done(&s->in);
  }
}

/* ---- rows on the scalar pipe ---- */

/* The references of the sums. */
AICORE void finish_largest(const state *s, int64_t rows) {
  const ub_f32 largest = words_of(s, MOST);
  if (s->a->map.cap > 0) logits_of(&s->a->map, largest, largest, s->near, s->far, s->spread_to, rows);
  scalar_after_vectors();
  for (int64_t i = 0; i < rows; ++i) {
    if (count_of(s, CLASSES, i) == s->a->w.cols) set_word(s, MOST, i, MINUS_INFINITY);
    const float most = word_of(s, MOST, i);
    set_word(s, REFERENCE, i, is_finite(most) ? most : 0);
    set_number(s, SUM, i, one_float(0));
    set_number(s, HARD_SUM, i, one_float(0));
  }
  vectors_after_scalar();
}

/* The log-sum-exp of the support's logits, or without a map of its entries of the target. */
AICORE float support_at(const state *s, const logit_map *map, int64_t i, int64_t n) {
  const float x = map ? value_at(s, i, n) : target_at(s, i, n);
  return map && map->cap > 0 ? logit_of(map, x).z.hi : x;
}
AICORE twofold support_lse(const state *s, const logit_map *map, int64_t i) {
  const float scale = map ? map->times : s->a->inverse_temperature;
  const int64_t classes = count_of(s, CLASSES, i);
  exponentials e = {MINUS_INFINITY, {0, 0}};
  for (int64_t n = 0; n < classes; ++n) e.largest = larger(support_at(s, map, i, n), e.largest);
  for (int64_t n = 0; n < classes; ++n) add_exponential(&e, scale, support_at(s, map, i, n));
  return log_sum_exp(&e, scale);
}

/* The teacher's numbers of row i. */
AICORE void know_target(const state *s, int64_t i, topk_row *row) {
  const int64_t classes = count_of(s, CLASSES, i);
  twofold sum = {0, 0};
  topk_element e;
  row->target_lse = s->a->target_is == TIGON_DISTRIBUTION_LOGITS ? support_lse(s, NULL, i) : one_float(0);
  for (int64_t n = 0; n < classes && s->a->tail; ++n) {
    set_target(s->a, row, target_at(s, i, n), &e);
    sum = twofold_sum(sum, value_of(e.p));
  }
  row->tail = tail_left(s->a, classes, sum);
}

/* Row i's numbers forward, and its loss. */
AICORE void finish_row(const state *s, int64_t i) {
  const topk_divergence_arguments *a = s->a;
  topk_row row = {{0, 0}, {0, 0}, {0, 0}, {0, 0}, {0, 0}};
  twofold loss = {0, 0}, hard_lse = {0, 0}, entropy = {0, 0};
  if (row_counts_here(s, i)) {
    const exponentials e = {word_of(s, MOST, i), number_of(s, SUM, i)};
    row.outside = log_sum_exp(&e, a->map.times);
    row.lse = log_add(support_lse(s, &a->map, i), row.outside);
    if (row.lse.hi != row.lse.hi) row.outside = row.lse;
    know_target(s, i, &row);
    for (int64_t n = 0; n < count_of(s, CLASSES, i); ++n) {
      const topk_element of = element_of(s->a, &row, value_at(s, i, n), target_at(s, i, n));
      add_class(s->a, &of, &loss, &row.mean);
    }
    const topk_element tail = tail_of(&row);
    add_class(s->a, &tail, &loss, &row.mean);
    if (is_hard(s)) {
      const exponentials hard = {word_of(s, MOST, i), number_of(s, HARD_SUM, i)};
      hard_lse = log_add(support_lse(s, &a->hard_map, i), log_sum_exp(&hard, a->hard_map.times));
      entropy = twofold_difference(hard_lse, mapped(&a->hard_map, word_of(s, LABEL_X, i)));
    }
  }
  const float stats[LOSS_STATS] = {row.lse.hi, row.outside.hi, row.mean.hi};
  for (int k = 0; k < LOSS_STATS; ++k) s_write_f32(s->rows.stats, i * LOSS_STATS + k, stats[k]);
  if (a->rows.hard_lse) s_write_f32(s->rows.hard_lse, i, hard_lse.hi);
  set_losses(&a->rows, &s->rows, i, loss, entropy);
  set_number(s, HARD_LSE, i, hard_lse);
  set_row(s, i, &row);
}

/* Row i's numbers in backward. */
AICORE void take_stats(const state *s, int64_t i) {
  const ub_f32 stats = ub_at_f32(s->rows.stats, i * LOSS_STATS);
  topk_row row = {one_float(s_read_f32(stats, 0)),
                  one_float(s_read_f32(stats, 1)),
                  one_float(s_read_f32(stats, 2)),
                  {0, 0},
                  {0, 0}};
  if (row_counts_here(s, i)) know_target(s, i, &row);
  if (is_hard(s)) set_number(s, HARD_LSE, i, one_float(s_read_f32(s->rows.hard_lse, i)));
  set_row(s, i, &row);
}

/* What makes row i's gradient outside. What is left of the log-sum-exp beside the reference is small, so that a sum of f32 has both. */
AICORE void find_factors(const state *s, int64_t i) {
  const topk_row row = row_of(s, i);
  const float scale = s->a->map.times;
  const bool masked = row.outside.hi == MINUS_INFINITY;
  const twofold factor = row_factor(&s->a->rows, &s->rows, i, s->a->rows.grad);
  const topk_element tail = tail_of(&row);
  float reference = s->a->rows.backward ? row.outside.hi / scale : word_of(s, REFERENCE, i);
  if (masked || !is_finite(reference)) reference = 0;
  const twofold log_sum = twofold_difference(row.outside, two_product(reference, scale));
  if (is_hard(s)) {
    const twofold hard = row_factor(&s->a->rows, &s->rows, i, s->a->rows.hard_grad);
    const twofold apart = two_product(reference, s->a->hard_map.times);
    set_word(s, HARD_LOG_SUM, i, twofold_difference(number_of(s, HARD_LSE, i), apart).hi);
    set_number(s, HARD_FACTOR, i, hard);
    set_word(s, HARD_BY, i, hard.hi);
  }
  set_number(s, FACTOR, i, factor);
  set_word(s, REFERENCE, i, reference);
  set_word(s, LOG_SUM, i, masked ? 0 : log_sum.hi);
  set_word(s, BY, i, masked ? 0 : twofold_mul(factor, gradient_of(s->a, &row, &tail)).hi);
}

AICORE void rows_of_tile(state *s, int64_t r, int64_t rows) {
  const topk_divergence_arguments *a = s->a;
  if (a->w.cached) load_input(s, tile_of(a->dtype, rows, a->w.cols), r, 0);
  load_losses(&a->rows, &s->rows, r, rows);
  load_entries(s, r, rows);
  scalar_after_vectors();
  for (int64_t i = 0; i < rows; ++i) find_classes(s, i, s->x);
  vectors_after_scalar();
  if (!a->rows.backward) {
    duplicate(words_of(s, MOST), MINUS_INFINITY, s->pitch);
    go_over(s, PASS_LARGEST, r, rows);
    finish_largest(s, rows);
    go_over(s, PASS_SUMS, r, rows);
    scalar_after_vectors();
    for (int64_t i = 0; i < rows; ++i) finish_row(s, i);
    store_losses(&a->rows, &s->rows, r, rows);
    vectors_after_scalar();
  }
  if (a->dinput.data) {
    scalar_after_vectors();
    for (int64_t i = 0; i < rows; ++i) {
      if (a->rows.backward) take_stats(s, i);
      find_factors(s, i);
    }
    vectors_after_scalar();
    go_over(s, PASS_GRADIENT, r, rows);
    scalar_after_vectors();
  }
  if (a->w.cached) in_done(&s->in);
}

AICORE state open_state(ub_arena *ub, const topk_divergence_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const bool both = a->dtype != TIGON_F32;
  state s = {.a = a, .out_of_range = a->all_out_of_range != 0};
  s.pitch = round_up(a->w.tile_rows, 8);
  s.id_pitch = round_up(a->k * index_words(a->id_dtype), 8);
  s.entry_pitch = tile_of(a->target_dtype, 1, a->k).pitch;
  s.in = ring_of(ub, 0, a->w.cached ? a->w.buffers : 2, tile_bytes(a->dtype, kept));
  s.out = ring_of(ub, 0, 2, a->dinput.data ? tile_bytes(a->dtype, chunk) : 0);
  s.words = ub_alloc_f32(ub, ROW_WORDS * s.pitch);
  s.ids = ub_alloc_f32(ub, a->w.tile_rows * s.id_pitch);
  s.target = ub_alloc_f32(ub, a->w.tile_rows * s.entry_pitch);
  s.order = ub_alloc_f32(ub, a->w.tile_rows * s.entry_pitch);
  s.values = ub_alloc_f32(ub, a->w.tile_rows * s.entry_pitch);
  s.x = ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  s.d = ub_alloc_f32(ub, both && a->dinput.data ? chunk.rows * chunk.pitch : 0);
  s.near = ub_alloc_f32(ub, a->map.cap > 0 ? chunk.rows * chunk.pitch : 0);
  s.far = ub_alloc_f32(ub, a->map.cap > 0 ? chunk.rows * chunk.pitch : 0);
  s.spread_to = ub_alloc_f32(ub, work_elements(chunk));
  duplicate(s.words, 0, ROW_WORDS * s.pitch);
  s.rows = open_losses(ub, &a->rows, s.pitch);
  in_open(&s.in);
  out_open(&s.out);
  return s;
}

AICORE_KERNEL(topk_divergence, topk_divergence_arguments) {
  const ub_f32 flag = ub_alloc_f32(ub, 8);
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows)
      rows_of_tile(&s, r, least(a->w.tile_rows, b.row_end - r));
  }
  in_close(&s.in);
  out_close(&s.out);
  if (!a->flags) return;
  s_write_i32(flag, 0, s.out_of_range);
  stores_after_scalar();
  store_f32(a->flags + block_index() * 4, flag, 1, 1);
}
