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
  bool backward;
  ring words, given; /* rstd of a tile's rows as memory has it; a task's totals */
  float weight[POLY_POWERS], bias;
  ub_f32 order;       /* byte offsets between rstd in memory and by power */
  ub_f32 factor;      /* [POLY_POWERS, rows.words]: rstd, then what multiplies each power */
  ub_f32 total, part; /* [POLY_SUMS] of a task's rows, of a tile's */
  ub_f32 more, own;   /* f32 tiles; `own` has the result with 16-bit dtypes */
} state;

AICORE state open_state(ub_arena *ub, const reduce_arguments *a) {
  const bool backward = a->in[1].data != NULL;
  state s = {.rows = reduce_open(ub, a, backward ? POLY_SUMS : POLY_POWERS), .backward = backward};
  const int64_t words = s.rows.words, n = POLY_POWERS * words;
  s.words = ring_of(ub, 3, 2, n * 4);
  s.order = ub_alloc_f32(ub, n);
  s.factor = ub_alloc_f32(ub, n);
  s.total = ub_alloc_f32(ub, 8);
  s.part = ub_alloc_f32(ub, 8);
  s.given = (ring){s.total, 0, 5, 1, 0};
  const int64_t tile_words = a->w.tile_rows * tile_of(a->dtype, 1, a->w.tile_cols).pitch;
  s.more = ub_alloc_f32(ub, tile_words);
  s.own = backward ? ub_alloc_f32(ub, a->dtype == TIGON_F32 ? 0 : tile_words) : s.more;
  read_numbers(ub, 5, a->vector[0], a->vector_dtype[0], POLY_POWERS, s.weight);
  if (a->vector[1]) read_numbers(ub, 6, a->vector[1], a->vector_dtype[1], 1, &s.bias);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t packed = i % words * POLY_POWERS + i / words, by_power = i % POLY_POWERS * words + i / POLY_POWERS;
    s_write_i32(s.order, i, (int32_t)(4 * (backward ? packed : by_power)));
  }
  vector_waits();
  duplicate(s.words.start, 0, s.words.count * n);
  in_open(&s.words);
  out_open(&s.words);
  out_open(&s.given);
  return s;
}

AICORE void sum_powers(const state *s) {
  const reduction *r = &s->rows;
  const ub_f32 x = r->value[0];
  ub_f32 term = s->backward ? r->value[1] : s->more;
  if (!s->backward) mul(term, x, x, r->n);
  for (int i = r->sum_count - 1; i >= 0; --i) {
    row_sums_kept(reduce_chunk_sum(r, i), r->work, term, r->t);
    mul(s->more, term, x, r->n);
    if (!s->backward) mul(s->more, s->more, x, r->n);
    term = s->more;
  }
}

/* rstd from the sums, which it stores. */
AICORE void find_rstd(state *s) {
  const reduction *r = &s->rows;
  const int64_t n = POLY_POWERS * r->words;
  divide_sums(r->sums, s->factor, r->a->w.cols, n);
  inverse_root(s->factor, r->sums, r->a->number, n);
  out_begin(&s->words);
  v_gather_f32(ring_now(&s->words), s->factor, s->order, n);
  sync_pipe(PIPE_V);
  out_ready(&s->words);
  if (r->a->words && r->b.col == 0)
    store_f32(r->a->words + r->row * POLY_POWERS * 4, ring_now(&s->words), 1, POLY_POWERS * r->rows);
  out_done(&s->words);
}

/* Loads rstd, adds r_p * S_p to the totals, and leaves back_p = r_p^2 * S_p / C in the place of the sums. */
AICORE void add_totals(state *s) {
  const reduction *r = &s->rows;
  const int64_t n = POLY_POWERS * r->words;
  in_begin(&s->words);
  load_f32(ring_now(&s->words), r->a->words + r->row * POLY_POWERS * 4, 1, POLY_POWERS * r->rows);
  in_ready(&s->words);
  v_gather_f32(s->factor, ring_now(&s->words), s->order, n);
  sync_pipe(PIPE_V);
  in_done(&s->words);
  mul(r->sums, r->sums, s->factor, n);
  row_sums_kept(s->part, r->work, r->sums, (tile){POLY_SUMS, r->rows, r->words});
  add(s->total, s->total, s->part, POLY_SUMS);
  mul(r->sums, r->sums, s->factor, n);
  mul_scalar(r->sums, r->sums, 1.0f / (float)r->a->w.cols, n);
}

/* y = ((f_3 * x + f_2) * x + f_1) * x + b, or dx = (g_3 * x + g_2) * x + g_1 with g_p = f_p * (dy - x^p * back_p) */
AICORE void find_out(const state *s, ub_f32 out) {
  const reduction *r = &s->rows;
  const ub_f32 x = r->value[0], dy = r->value[1];
  for (int i = 0; i < POLY_POWERS; ++i) {
    const ub_f32 f = ub_at_f32(s->factor, i * r->words), g = i == 0 ? out : s->more;
    if (s->backward) {
      if (i < 2) mul(g, x, x, r->n);
      if (i == 0) mul(g, g, x, r->n);
      by_rows(ROW_MUL, g, i < 2 ? g : x, reduce_sum(r, i), r->work, r->t);
      sub(g, dy, g, r->n);
      by_rows(ROW_MUL, g, g, f, r->work, r->t);
      if (i == 0) continue;
      mul(out, out, x, r->n);
      add(out, out, g, r->n);
    } else {
      by_rows(i == 0 ? ROW_MUL : ROW_ADD, out, i == 0 ? x : out, f, r->work, r->t);
      if (i > 0) mul(out, out, x, r->n);
    }
  }
  if (!s->backward) add_scalar(out, out, s->bias, r->n);
}

AICORE_KERNEL(poly_norm, reduce_arguments) {
  state s = open_state(ub, a);
  reduction *r = &s.rows;
  while (reduce_next_task(r)) {
    out_begin(&s.given);
    duplicate(s.total, 0, 8);
    while (reduce_next_rows(r)) {
      while (reduce_next_sums(r)) sum_powers(&s);
      if (a->parts & PART_ROWS) s.backward ? add_totals(&s) : find_rstd(&s);
      for (int i = 0; i < POLY_POWERS && a->parts & PART_ROWS; ++i) {
        const ub_f32 f = ub_at_f32(s.factor, i * r->words);
        mul_scalar(f, f, s.weight[i] * (float)(s.backward ? POLY_POWERS - i : 1), r->words);
      }
      while (reduce_next_out(r)) {
        if (a->dtype != TIGON_F32) r->result = s.own;
        find_out(&s, r->result);
      }
    }
    out_ready(&s.given);
    if (a->totals && a->parts & PART_ROWS && r->b.split == 0)
      store_f32(a->totals + r->task / a->w.splits * POLY_SUMS * 4, s.total, 1, POLY_SUMS);
    out_done(&s.given);
  }
  reduce_close(r);
  in_close(&s.words);
  out_close(&s.words);
  out_close(&s.given);
}
