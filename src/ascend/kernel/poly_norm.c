/* poly_norm, as op/poly_norm.h writes it. Vectors are w and b, words are rstd, totals are dw and db of rows. A row's sums are of
 * x^2p forward, of dy * x^p and dy backward. Arrays of values by power have the third power first, and a value for each row of the
 * tile. */
#include "ascend/kernel/norm.h"
#include "ascend/kernel/reduce.h"

enum { POLY_POWERS = 3, POLY_SUMS = 4 };
void poly_norm(ub_arena *ub, const void *arguments);

typedef struct state {
  reduction rows;
  bool backward;
  float weight[POLY_POWERS], bias;
  ub_f32 factor;    /* [POLY_POWERS, rows.words]: rstd, then what multiplies each power */
  ub_f32 more, own; /* f32 tiles; `own` has the result with 16-bit dtypes */
} state;

AICORE state open_state(ub_arena *ub, const reduce_arguments *a) {
  const bool backward = a->in[1].data != NULL;
  state s = {.rows = reduce_open(ub, a, backward ? POLY_SUMS : POLY_POWERS), .backward = backward};
  reduce_open_words(&s.rows, ub, POLY_POWERS, backward);
  s.factor = ub_alloc_f32(ub, POLY_POWERS * s.rows.words);
  const int64_t tile_words = a->w.tile_rows * tile_of(a->dtype, 1, a->w.tile_cols).pitch;
  s.more = ub_alloc_f32(ub, tile_words);
  s.own = backward ? ub_alloc_f32(ub, a->dtype == TIGON_F32 ? 0 : tile_words) : s.more;
  read_numbers(ub, 5, a->vector[0], a->vector_dtype[0], POLY_POWERS, s.weight);
  if (a->vector[1]) read_numbers(ub, 6, a->vector[1], a->vector_dtype[1], 1, &s.bias);
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

/* The factors from the sums: forward by rstd, which it stores. Backward loads rstd, adds r_p * S_p to the totals and leaves
 * back_p = r_p^2 * S_p / C in the place of the sums. */
AICORE void find_factors(state *s) {
  reduction *r = &s->rows;
  const int64_t n = POLY_POWERS * r->words;
  if (s->backward) {
    reduce_load_words(r, s->factor);
    mul(r->sums, r->sums, s->factor, n);
    reduce_add_totals(r);
    mul(r->sums, r->sums, s->factor, n);
    mul_scalar(r->sums, r->sums, 1.0f / (float)r->a->w.cols, n);
  } else {
    divide_sums(r->sums, s->factor, r->a->w.cols, n);
    inverse_root(s->factor, r->sums, r->a->number, n);
    reduce_store_words(r, s->factor);
  }
  for (int i = 0; i < POLY_POWERS; ++i) {
    const ub_f32 f = ub_at_f32(s->factor, i * r->words);
    mul_scalar(f, f, s->weight[i] * (float)(s->backward ? POLY_POWERS - i : 1), r->words);
  }
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
  while (reduce_next_task(r))
    while (reduce_next_rows(r)) {
      while (reduce_next_sums(r)) sum_powers(&s);
      if (a->parts & PART_ROWS) find_factors(&s);
      while (reduce_next_out(r)) {
        if (a->dtype != TIGON_F32) r->result = s.own;
        find_out(&s, r->result);
      }
    }
  reduce_close(r);
}
