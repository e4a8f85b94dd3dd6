/* softmax forward: z = scale * x + mask, y = exp(z - max z) / sum exp(z - max z).
 * A row's x and mask are on chip at once (cases B to D), or come in chunks of columns (E, F). Then the first pass finds the largest
 * score and the sum, which go together from chunk to chunk: a larger score scales the sum down. The second pass makes y. Columns that
 * causal hides, and the padding of a row up to its pitch, score -inf. */

#include "ascend/kernel/ordered.h"
#include "ascend/kernel/softmax.h"

#define LOWEST (-0x1.fffffep127f) /* in the place of a largest score of -inf, so that e^(-inf - it) is 0 */

typedef struct state {
  const softmax_fwd_arguments *a;
  ring x, mask, y, arrival, out;
  ub_f32 max, sum;           /* numbers of each row, so far */
  ub_f32 part_max, part_sum; /* numbers of a chunk, if there are several */
  ub_f32 work, wide;         /* f32 tiles; `wide` with 16-bit dtypes alone, where f32 has y's buffer */
} state;

AICORE ub_f32 words_of(ub_arena *ub, int64_t words, float value) {
  const ub_f32 array = ub_alloc_f32(ub, words);
  if (words) v_duplicate_f32(array, value, words);
  return array;
}

/* Elements from row to row of a mask's tile: with an f32 mask beside 16 bits fewer than a row of x takes. */
AICORE int64_t mask_pitch(const softmax_fwd_arguments *a, int64_t cols) {
  return tile_of(a->mask_dtype, 1, cols).pitch;
}

AICORE state open_state(ub_arena *ub, const softmax_fwd_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const int64_t words = round_up(a->w.tile_rows, 8), several = chunk.cols < a->w.cols ? words : 0;
  const int64_t buffers = a->w.cached ? a->w.buffers : 2;
  state s = {.a = a};
  s.x = ring_of(ub, 0, buffers, tile_bytes(a->dtype, kept));
  s.mask =
      ring_of(ub, 2, buffers, a->mask.data ? kept.rows * mask_pitch(a, kept.cols) * dtype_bytes(a->mask_dtype) : 0);
  s.y = ring_of(ub, 0, 2, tile_bytes(a->dtype, chunk));
  s.arrival = ring_of(ub, 4, 1, a->parts & PART_SUMS ? 0 : 2 * round_up(a->w.splits, 8) * 4);
  s.max = words_of(ub, words, LOWEST);
  s.sum = words_of(ub, words, 0);
  s.part_max = words_of(ub, several, LOWEST);
  s.part_sum = words_of(ub, several, 0);
  s.out = (ring){s.sum, 0, 2, 1, 0};
  s.work = ub_alloc_f32(ub, work_elements(chunk));
  s.wide = ub_alloc_f32(ub, a->dtype == TIGON_F32 ? 0 : chunk.rows * chunk.pitch);
  sync_pipe(PIPE_V);
  in_open(&s.x);
  in_open(&s.mask);
  in_open(&s.arrival);
  out_open(&s.y);
  out_open(&s.out);
  return s;
}

AICORE void close_state(const state *s) {
  in_close(&s->x);
  in_close(&s->mask);
  in_close(&s->arrival);
  out_close(&s->y);
  out_close(&s->out);
}

/* ---- scores ---- */

/* The number of columns of [c, c + cols) that row r sees. */
AICORE int64_t seen(const softmax_fwd_arguments *a, int64_t r, int64_t c, int64_t cols) {
  if (!a->causal) return cols;
  const int64_t n = r % a->tokens + 1 + a->w.cols - a->tokens - c;
  return n < 0 ? 0 : least(n, cols);
}
/* Rows go one by one where they see different columns, or where a mask's rows lie closer than those of x. */
AICORE bool ragged(const softmax_fwd_arguments *a, tile t) {
  return a->causal || (a->mask.data && mask_pitch(a, t.cols) < t.pitch);
}

AICORE void load_rows(const state *s, tile t, int64_t r, int64_t c) {
  const softmax_fwd_arguments *a = s->a;
  in_begin(&s->x);
  load_tile(a->dtype, ring_now(&s->x), &a->space, &a->x, t, r, c);
  in_ready(&s->x);
  if (!a->mask.data) return;
  const tile m = {t.rows, t.cols, mask_pitch(a, t.cols)};
  in_begin(&s->mask);
  load_tile(a->mask_dtype, ring_now(&s->mask), &a->space, &a->mask, m, r, c);
  in_ready(&s->mask);
}
AICORE void rows_done(state *s) {
  in_done(&s->x);
  if (s->a->mask.data) in_done(&s->mask);
}

/* z = the scores of a chunk: from what is cached, or loaded. */
AICORE void scores(state *s, ub_f32 z, tile t, int64_t r, int64_t c) {
  const softmax_fwd_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch, cached = a->w.cached ? c : 0, pitch = mask_pitch(a, t.cols);
  if (!a->w.cached) load_rows(s, t, r, c);
  const ub_f32 x = values_of(a->dtype, s->work, ub_at_f32(ring_now(&s->x), cached * dtype_bytes(a->dtype) / 4), t);
  if (ragged(a, t)) {
    duplicate(z, -__builtin_inff(), n);
    for (int64_t i = 0; i < t.rows; ++i) {
      const int64_t cols = seen(a, r + i, c, t.cols);
      if (cols) v_mul_scalar_f32(ub_at_f32(z, i * t.pitch), ub_at_f32(x, i * t.pitch), a->scale, cols);
    }
    sync_pipe(PIPE_V);
  } else {
    mul_scalar(z, x, a->scale, n);
  }
  if (a->mask.data) {
    const ub_f32 raw = ub_at_f32(ring_now(&s->mask), cached * dtype_bytes(a->mask_dtype) / 4);
    const ub_f32 mask = values_of(a->mask_dtype, s->work, raw, (tile){t.rows, t.cols, pitch});
    for (int64_t i = 0; ragged(a, t) && i < t.rows; ++i) {
      const ub_f32 row = ub_at_f32(z, i * t.pitch);
      const int64_t cols = seen(a, r + i, c, t.cols);
      if (cols) v_add_f32(row, row, ub_at_f32(mask, i * pitch), cols);
    }
    if (!ragged(a, t)) v_add_f32(z, z, mask, n);
    sync_pipe(PIPE_V);
  }
  if (!a->w.cached) rows_done(s);
  if (!ragged(a, t)) hide_filling(z, s->work, t);
}

/* z = z op a value a row, in the columns that count. */
AICORE void by_row(const state *s, row_op op, ub_f32 z, ub_f32 values, tile t, int64_t r, int64_t c) {
  spread(s->work, values, t.rows);
  if (!s->a->causal) {
    tile_op(op, z, z, s->work, t, true);
    return;
  }
  for (int64_t i = 0; i < t.rows; ++i) {
    const ub_f32 row = ub_at_f32(z, i * t.pitch);
    row_op_of(op, row, row, ub_at_f32(s->work, 8 * i), seen(s->a, r + i, c, t.cols), true);
  }
  sync_pipe(PIPE_V);
}

/* ---- the rows ---- */

/* z = e^(z - max), and its sums over columns; where that is not the first chunk, onto those before. */
AICORE void sum_chunk(state *s, ub_f32 z, tile t, int64_t r, int64_t c, bool first) {
  const ub_f32 max = first ? s->max : s->part_max, sum = first ? s->sum : s->part_sum;
  const int64_t n = t.rows * t.pitch;
  mul_scalar(s->work, z, 1, n);
  row_maxima(max, s->work, t);
  if (first)
    at_least(max, max, LOWEST, t.rows);
  else
    v_max_f32(max, max, s->max, t.rows);
  sync_pipe(PIPE_V);
  by_row(s, ROW_SUB, z, max, t, r, c);
  exponential(z, z, n);
  mul_scalar(s->work, z, 1, n);
  row_sums(sum, s->work, t);
  if (first) return;
  sub(s->max, s->max, max, t.rows);
  exponential(s->max, s->max, t.rows);
  mul(s->sum, s->sum, s->max, t.rows);
  add(s->sum, s->sum, sum, t.rows);
  mul_scalar(s->max, max, 1, t.rows);
}

/* max and sum = the splits' of row r, in one fixed tree. */
AICORE void join_parts(state *s, int64_t r) {
  const softmax_fwd_arguments *a = s->a;
  const int64_t splits = a->w.splits, all = a->w.rows * splits;
  const ub_f32 max = s->arrival.start, sum = ub_at_f32(max, round_up(splits, 8));
  const tile t = tile_of(TIGON_F32, 1, V_LANES); /* a device has no more splits */
  in_begin(&s->arrival);
  load_f32(max, a->partials + r * splits * 4, 1, splits);
  load_f32(sum, a->partials + (all + r * splits) * 4, 1, splits);
  in_ready(&s->arrival);
  duplicate(s->work, LOWEST, V_LANES);
  mul_scalar(s->work, max, 1, splits);
  row_maxima(s->max, s->work, t);
  spread(s->work, s->max, 1);
  row_op_of(ROW_SUB, max, max, s->work, splits, true);
  sync_pipe(PIPE_V);
  exponential(max, max, splits);
  duplicate(s->work, 0, V_LANES);
  mul(s->work, max, sum, splits);
  row_sums(s->sum, s->work, t);
  in_done(&s->arrival);
}

AICORE void hand_over(state *s, box b, int64_t r) {
  const softmax_fwd_arguments *a = s->a;
  const int64_t at = r * a->w.splits + b.split;
  store_f32(a->partials + at * 4, s->max, 1, 1);
  store_f32(a->partials + (a->w.rows * a->w.splits + at) * 4, s->sum, 1, 1);
}

AICORE void store_y(state *s, ub_f32 z, tile t, int64_t r, int64_t c) {
  const softmax_fwd_arguments *a = s->a;
  by_row(s, ROW_MUL, z, s->sum, t, r, c);
  if (a->dtype != TIGON_F32) narrow(a->dtype, ring_now(&s->y), z, t.rows * t.pitch);
  out_ready(&s->y);
  store_tile(a->dtype, &a->space, &a->y, ring_now(&s->y), t, r, c);
  out_done(&s->y);
}

/* sum = 1 / sum; a row that sees nothing has 0. */
AICORE void invert_sums(state *s, int64_t rows) {
  at_least(s->sum, s->sum, 0x1p-126f, rows);
  duplicate(s->work, 1, rows);
  divide(s->sum, s->work, s->sum, rows);
}

AICORE ub_f32 scores_begin(const state *s) {
  out_begin(&s->y);
  return s->a->dtype == TIGON_F32 ? ring_now(&s->y) : s->wide;
}

AICORE void rows_of_tile(state *s, box b, int64_t r, int64_t rows) {
  const softmax_fwd_arguments *a = s->a;
  const int64_t wide = a->w.tile_cols;
  const bool there = a->w.cached && wide == a->w.cols; /* the sum leaves the exponentials behind */
  if (a->w.cached) load_rows(s, tile_of(a->dtype, rows, a->w.cols), r, 0);
  out_begin(&s->out);
  for (int64_t c = b.col; a->parts & PART_SUMS && c < b.col_end; c += wide) {
    const tile t = tile_of(a->dtype, rows, least(wide, b.col_end - c));
    const ub_f32 z = scores_begin(s);
    scores(s, z, t, r, c);
    sum_chunk(s, z, t, r, c, c == b.col);
    if (there) break;
    out_ready(&s->y); /* the buffer was for the work alone */
    out_done(&s->y);
  }
  if (!(a->parts & PART_SUMS)) join_parts(s, r);
  out_ready(&s->out);
  if (!(a->parts & PART_ROWS)) hand_over(s, b, r);
  out_done(&s->out);
  if (a->parts & PART_ROWS) {
    invert_sums(s, rows);
    for (int64_t c = b.col; c < b.col_end; c += wide) {
      const tile t = tile_of(a->dtype, rows, least(wide, b.col_end - c));
      const ub_f32 z = there ? (a->dtype == TIGON_F32 ? ring_now(&s->y) : s->wide) : scores_begin(s);
      if (!there) {
        scores(s, z, t, r, c);
        by_row(s, ROW_SUB, z, s->max, t, r, c);
        exponential(z, z, rows * t.pitch);
      }
      store_y(s, z, t, r, c);
    }
  }
  if (a->w.cached) rows_done(s);
}

AICORE_KERNEL(softmax_fwd, softmax_fwd_arguments) {
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows)
      rows_of_tile(&s, b, r, least(a->w.tile_rows, b.row_end - r));
  }
  close_state(&s);
}
