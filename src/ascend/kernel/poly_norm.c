/* poly_norm, as op/poly_norm.h writes it. Vectors are w and b, words are rstd, totals are dw and db of rows. A row's sums are of
 * x^2p forward, of dy * x^p and dy backward. Arrays of values by power have the third power first, and a value for each row of the
 * tile. */
#include "ascend/kernel/norm.h"
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/reduce.h"

enum { POLY_POWERS = 3, POLY_SUMS = 4 };
void poly_norm(ub_arena *ub, const void *arguments);

typedef struct state {
  reduction rows;
  const reduce_arguments *a;
  bool backward;
  ring words, given; /* rstd of a tile's rows as memory has it; a task's totals */
  float weight[POLY_POWERS], bias;
  ub_f32 order;       /* byte offsets between rstd in memory and by power */
  ub_f32 factor;      /* [POLY_POWERS, rows.words]: rstd, then what multiplies each power */
  ub_f32 total, part; /* [POLY_SUMS] of a task's rows, of a tile's */
  ub_f32 more, own;   /* f32 tiles; `own` has the result with 16-bit dtypes */
} state;

AICORE ub_f32 factor_of(const state *s, int64_t i) { return ub_at_f32(s->factor, i * s->rows.words); }

AICORE void write_order(const state *s) {
  const int64_t words = s->rows.words;
  for (int64_t i = 0; i < POLY_POWERS * words; ++i) {
    const int64_t packed = i % words * POLY_POWERS + i / words, split = i % POLY_POWERS * words + i / POLY_POWERS;
    s_write_i32(s->order, i, (int32_t)(4 * (s->backward ? packed : split)));
  }
  vector_waits();
}

AICORE state open_state(ub_arena *ub, const reduce_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const int64_t n = chunk.rows * chunk.pitch;
  const bool backward = a->in[1].data != NULL;
  state s = {.rows = reduce_open(ub, a, backward ? POLY_SUMS : POLY_POWERS), .a = a, .backward = backward};
  const int64_t by_power = POLY_POWERS * s.rows.words;
  s.words = ring_of(ub, 3, 2, by_power * 4);
  s.order = ub_alloc_f32(ub, by_power);
  s.factor = ub_alloc_f32(ub, by_power);
  s.total = ub_alloc_f32(ub, 8);
  s.part = ub_alloc_f32(ub, 8);
  s.given = (ring){s.total, 0, 5, 1, 0};
  s.more = ub_alloc_f32(ub, n);
  s.own = backward ? ub_alloc_f32(ub, a->dtype == TIGON_F32 ? 0 : n) : s.more;
  read_numbers(ub, 5, a->vector[0], a->vector_dtype[0], POLY_POWERS, s.weight);
  if (a->vector[1]) read_numbers(ub, 6, a->vector[1], a->vector_dtype[1], 1, &s.bias);
  write_order(&s);
  duplicate(s.words.start, 0, s.words.count * s.words.elements);
  in_open(&s.words);
  out_open(&s.words);
  out_open(&s.given);
  return s;
}

AICORE void close_state(const state *s) {
  reduce_close(&s->rows);
  in_close(&s->words);
  out_close(&s->words);
  out_close(&s->given);
}

/* Values of rows go from memory's order to that of powers, or back. */
AICORE void reorder(const state *s, ub_f32 to, ub_f32 from) {
  v_gather_f32(to, from, s->order, POLY_POWERS * s->rows.words);
  sync_pipe(PIPE_V);
}

/* x = x op the rows' values, one each. */
AICORE void by_rows(const state *s, row_op op, ub_f32 d, ub_f32 x, ub_f32 values) {
  spread(s->rows.work, values, s->rows.rows);
  tile_op(op, d, x, s->rows.work, s->rows.t, true);
}

/* ---- forward ---- */

AICORE void sum_squares(const state *s) {
  const reduction *r = &s->rows;
  mul(r->work, r->value[0], r->value[0], r->n);
  mul(s->more, r->work, r->value[0], r->n);
  mul(s->more, s->more, s->more, r->n);
  row_sums(reduce_chunk_sum(r, 0), s->more, r->t);
  mul(s->more, r->work, r->work, r->n);
  row_sums(reduce_chunk_sum(r, 1), s->more, r->t);
  row_sums(reduce_chunk_sum(r, 2), r->work, r->t);
}

/* rstd from the sums, which it stores, and then f_p = w_p * r_p. */
AICORE void find_factors(state *s) {
  const reduce_arguments *a = s->a;
  const reduction *r = &s->rows;
  divide_sums(r->sums, s->factor, a->w.cols, POLY_POWERS * r->words);
  inverse_root(s->factor, r->sums, a->number, POLY_POWERS * r->words);
  out_begin(&s->words);
  reorder(s, ring_now(&s->words), s->factor);
  out_ready(&s->words);
  if (a->words && r->b.col == 0)
    store_f32(a->words + r->row * POLY_POWERS * 4, ring_now(&s->words), 1, POLY_POWERS * r->rows);
  out_done(&s->words);
  for (int i = 0; i < POLY_POWERS; ++i) mul_scalar(factor_of(s, i), factor_of(s, i), s->weight[i], r->words);
}

/* y = ((f_3 * x + f_2) * x + f_1) * x + b */
AICORE void find_y(state *s) {
  const ub_f32 x = s->rows.value[0];
  const int64_t n = s->rows.n;
  if (s->a->dtype != TIGON_F32) s->rows.result = s->own;
  const ub_f32 y = s->rows.result;
  by_rows(s, ROW_MUL, y, x, factor_of(s, 0));
  for (int i = 1; i < POLY_POWERS; ++i) {
    by_rows(s, ROW_ADD, y, y, factor_of(s, i));
    mul(y, y, x, n);
  }
  add_scalar(y, y, s->bias, n);
}

/* ---- backward ---- */

AICORE void sum_products(const state *s) {
  const reduction *r = &s->rows;
  const ub_f32 x = r->value[0], dy = r->value[1];
  mul(r->work, dy, x, r->n);
  mul(s->more, r->work, x, r->n);
  row_sums(reduce_chunk_sum(r, 2), r->work, r->t);
  mul(r->work, s->more, x, r->n);
  row_sums(reduce_chunk_sum(r, 1), s->more, r->t);
  row_sums(reduce_chunk_sum(r, 0), r->work, r->t);
  row_sums_kept(reduce_chunk_sum(r, 3), r->work, dy, r->t);
}

/* slope_p = p * w_p * r_p in the place of rstd, back_p = r_p^2 * S_p / C in that of the sums; adds r_p * S_p to the totals. */
AICORE void find_slopes(state *s) {
  const reduce_arguments *a = s->a;
  const reduction *r = &s->rows;
  const int64_t n = POLY_POWERS * r->words;
  in_begin(&s->words);
  load_f32(ring_now(&s->words), a->words + r->row * POLY_POWERS * 4, 1, POLY_POWERS * r->rows);
  in_ready(&s->words);
  reorder(s, s->factor, ring_now(&s->words));
  in_done(&s->words);
  mul(r->sums, r->sums, s->factor, n);
  row_sums_kept(s->part, r->work, r->sums, (tile){POLY_SUMS, r->rows, r->words});
  add(s->total, s->total, s->part, POLY_SUMS);
  mul(r->sums, r->sums, s->factor, n);
  mul_scalar(r->sums, r->sums, 1.0f / (float)a->w.cols, n);
  for (int i = 0; i < POLY_POWERS; ++i)
    mul_scalar(factor_of(s, i), factor_of(s, i), s->weight[i] * (float)(POLY_POWERS - i), r->words);
}

/* dx = (g_3 * x + g_2) * x + g_1 with g_p = slope_p * (dy - x^p * back_p) */
AICORE void find_dx(state *s) {
  const ub_f32 x = s->rows.value[0], dy = s->rows.value[1];
  const int64_t n = s->rows.n;
  if (s->a->dtype != TIGON_F32) s->rows.result = s->own;
  const ub_f32 dx = s->rows.result;
  for (int i = 0; i < POLY_POWERS; ++i) {
    const ub_f32 g = i == 0 ? dx : s->more;
    if (i < 2) mul(g, x, x, n);
    if (i == 0) mul(g, g, x, n);
    by_rows(s, ROW_MUL, g, i < 2 ? g : x, reduce_sum(&s->rows, i));
    sub(g, dy, g, n);
    by_rows(s, ROW_MUL, g, g, factor_of(s, i));
    if (i == 0) continue;
    mul(dx, dx, x, n);
    add(dx, dx, g, n);
  }
}

AICORE_KERNEL(poly_norm, reduce_arguments) {
  state s = open_state(ub, a);
  const reduction *r = &s.rows;
  while (reduce_next_task(&s.rows)) {
    out_begin(&s.given);
    duplicate(s.total, 0, 8);
    while (reduce_next_rows(&s.rows)) {
      while (reduce_next_sums(&s.rows)) s.backward ? sum_products(&s) : sum_squares(&s);
      if (a->parts & PART_ROWS) s.backward ? find_slopes(&s) : find_factors(&s);
      while (reduce_next_out(&s.rows)) s.backward ? find_dx(&s) : find_y(&s);
    }
    out_ready(&s.given);
    if (a->totals && a->parts & PART_ROWS && r->b.split == 0)
      store_f32(a->totals + r->task / a->w.splits * POLY_SUMS * 4, s.total, 1, POLY_SUMS);
    out_done(&s.given);
  }
  close_state(&s);
}
