/* softmax backward: dx = scale * y * (dy - sum(dy * y)). dy and y are on chip at once (cases B to D) or come by in chunks of
 * columns, once for the sum and once for dx (E, F). */
#include "ascend/kernel/softmax.h"

typedef struct state {
  const softmax_bwd_arguments *a;
  pair in; /* dy, y */
  ring dx, arrival, out;
  ub_f32 sums, part, work;
  ub_f32 dy, y; /* f32 tiles, with 16-bit dtypes alone */
} state;

AICORE state open_state(ub_arena *ub, const softmax_bwd_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const int64_t words = round_up(a->w.tile_rows, 8), wide = a->dtype == TIGON_F32 ? 0 : chunk.rows * chunk.pitch;
  state s = {.a = a};
  s.in = pair_of(ub, 0, a->w.cached ? a->w.buffers : 2, a->dtype, kept);
  s.dx = ring_of(ub, 0, 2, tile_bytes(a->dtype, chunk));
  s.arrival = ring_of(ub, 2, 1, a->parts & PART_SUMS ? 0 : a->w.splits * 4);
  s.sums = ub_alloc_f32(ub, words);
  s.part = ub_alloc_f32(ub, chunk.cols < a->w.cols ? words : 0);
  s.out = (ring){s.sums, 0, 2, 1, 0};
  s.work = ub_alloc_f32(ub, work_elements(chunk));
  s.dy = ub_alloc_f32(ub, wide);
  s.y = ub_alloc_f32(ub, wide);
  v_duplicate_f32(s.sums, 0, words);
  sync_pipe(PIPE_V);
  in_open(&s.in.in);
  in_open(&s.arrival);
  out_open(&s.dx);
  out_open(&s.out);
  return s;
}

AICORE void close_state(const state *s) {
  in_close(&s->in.in);
  in_close(&s->arrival);
  out_close(&s->dx);
  out_close(&s->out);
}

/* dy and y of columns [c, c + t.cols) in f32. chunk_done() ends it. */
AICORE void chunk_of(const state *s, tile t, int64_t r, int64_t c, ub_f32 *dy, ub_f32 *y) {
  const softmax_bwd_arguments *a = s->a;
  if (!a->w.cached) pair_load(&s->in, a->dtype, &a->space, &a->dy, &a->y, t, r, c);
  const ub_f32 raw = ub_at_f32(ring_now(&s->in.in), a->w.cached ? c * dtype_bytes(a->dtype) / 4 : 0);
  *dy = values_of(a->dtype, s->dy, raw, t);
  *y = values_of(a->dtype, s->y, ub_at_f32(raw, s->in.apart), t);
}
AICORE void chunk_done(state *s) {
  if (!s->a->w.cached) in_done(&s->in.in);
}

/* sums = the rows' sums of dy * y over columns [col, col_end). */
AICORE void sum_products(state *s, box b, int64_t r, int64_t rows) {
  const int64_t wide = s->a->w.tile_cols;
  for (int64_t c = b.col; c < b.col_end; c += wide) {
    const tile t = tile_of(s->a->dtype, rows, least(wide, b.col_end - c));
    ub_f32 dy, y;
    chunk_of(s, t, r, c, &dy, &y);
    v_mul_f32(s->work, dy, y, rows * t.pitch);
    sync_pipe(PIPE_V);
    chunk_done(s);
    row_sums(c == b.col ? s->sums : s->part, s->work, t);
    if (c == b.col) continue;
    v_add_f32(s->sums, s->sums, s->part, rows);
    sync_pipe(PIPE_V);
  }
}

AICORE void store_dx(state *s, box b, int64_t r, int64_t rows) {
  const softmax_bwd_arguments *a = s->a;
  const int64_t dtype = a->dtype, wide = a->w.tile_cols;
  for (int64_t c = b.col; c < b.col_end; c += wide) {
    const tile t = tile_of(dtype, rows, least(wide, b.col_end - c));
    const int64_t n = rows * t.pitch;
    const ub_f32 dx = ring_now(&s->dx), d = dtype == TIGON_F32 ? dx : s->dy;
    ub_f32 dy, y;
    chunk_of(s, t, r, c, &dy, &y);
    out_begin(&s->dx);
    spread(s->work, s->sums, rows);
    tile_op(ROW_SUB, d, dy, s->work, t, true);
    v_mul_f32(d, d, y, n);
    sync_pipe(PIPE_V);
    chunk_done(s);
    v_mul_scalar_f32(d, d, a->scale, n);
    sync_pipe(PIPE_V);
    if (dtype != TIGON_F32) narrow(dtype, dx, d, n);
    out_ready(&s->dx);
    store_tile(dtype, &a->space, &a->dx, dx, t, r, c);
    out_done(&s->dx);
  }
}

AICORE void rows_of_tile(state *s, box b, int64_t r, int64_t rows) {
  const softmax_bwd_arguments *a = s->a;
  if (a->w.cached) pair_load(&s->in, a->dtype, &a->space, &a->dy, &a->y, tile_of(a->dtype, rows, a->w.cols), r, 0);
  out_begin(&s->out);
  if (a->parts & PART_SUMS)
    sum_products(s, b, r, rows);
  else
    join_splits(s->sums, &s->arrival, a->partials + r * a->w.splits * 4, a->w.splits);
  out_ready(&s->out);
  if (!(a->parts & PART_ROWS)) store_f32(a->partials + (r * a->w.splits + b.split) * 4, s->sums, 1, 1);
  out_done(&s->out);
  if (a->parts & PART_ROWS) store_dx(s, b, r, rows);
  if (a->w.cached) in_done(&s->in.in);
}

AICORE_KERNEL(softmax_bwd, softmax_bwd_arguments) {
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows)
      rows_of_tile(&s, b, r, least(a->w.tile_rows, b.row_end - r));
  }
  close_state(&s);
}
