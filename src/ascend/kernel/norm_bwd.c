/* Backward of rms_norm, fused_add_rms_norm and layer_norm: with xhat = (x - mean) * rstd and g = dy * (w + w_offset),
 *   dx = rstd * (g - mean(g) - xhat * mean(g * xhat))        db = sum over rows of dy
 *   dw = sum over rows of dy * xhat, with xhat rounded as forward did
 * without the means of x and g in rms_norm, and for fused_add_rms_norm dx + ds in the place of dx. One walk for all of the plan's cases. Where a row does not stay on
 * chip and dw is wanted (E, F), the rows' sums come first and are handed over in global memory; then each panel of columns takes
 * all rows of the task, so that its dw never leaves the chip. */
#include "ascend/kernel/norm_bwd.h"

#include "ascend/kernel/norm.h"

/* A sum a row: of all chunks, and of one where there are several, or on its way out. */
typedef struct row_sum {
  ub_f32 all, part;
} row_sum;

AICORE row_sum row_sum_of(ub_arena *ub, int64_t words, bool apart) {
  const row_sum s = {ub_alloc_f32(ub, words), ub_alloc_f32(ub, apart ? words : 0)};
  if (words > 0) v_duplicate_f32(s.all, 0, words);
  return s;
}

typedef struct state {
  const norm_bwd_arguments *a;
  pair in; /* dy, x */
  ring ds, dx, arrival, out;
  ring words; /* rstd, then the mean */
  columns w;
  row_sum dot, g;          /* of g * xhat, and with a mean of g */
  ub_f32 sum_dw, sum_db;   /* of all columns where they stay on chip, else of a panel */
  ub_f32 xhat, work, wide; /* f32 tiles; `wide` (dy) with 16-bit dtypes alone */
} state;

AICORE state open_state(ub_arena *ub, const norm_bwd_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const int64_t words = round_up(a->w.tile_rows, 8);
  const bool apart = !a->w.cached || chunk.cols < a->w.cols;
  state s = {.a = a};
  s.in = pair_of(ub, 0, a->w.cached ? a->w.buffers : 2, a->dtype, kept);
  s.dx = ring_of(ub, 0, 2, tile_bytes(a->dtype, chunk));
  s.ds = ring_of(ub, 6, 2, a->ds.data ? tile_bytes(a->dtype, chunk) : 0);
  s.words = ring_of(ub, 4, 2, (a->mean ? 2 : 1) * words * 4);
  s.arrival = ring_of(ub, 3, 1, a->w.cached ? 0 : round_up(a->w.splits, 8) * 4);
  s.dot = row_sum_of(ub, words, apart);
  s.g = row_sum_of(ub, a->mean ? words : 0, apart && a->mean);
  s.xhat = ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  s.work = ub_alloc_f32(ub, work_elements(chunk));
  s.wide = a->dtype == TIGON_F32 ? s.work : ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  s.w = columns_of(ub, 2, a->weight, a->w_dtype, a->w_offset, chunk.pitch, s.work, a->w.tile_cols == a->w.cols);
  s.sum_dw = ub_alloc_f32(ub, a->dw ? kept.pitch : 0);
  s.sum_db = ub_alloc_f32(ub, a->db ? kept.pitch : 0);
  s.out = (ring){s.dot.part, 0, 2, 1, 0};
  in_open(&s.in.in);
  in_open(&s.ds);
  in_open(&s.w.stage);
  in_open(&s.words);
  in_open(&s.arrival);
  out_open(&s.dx);
  out_open(&s.out);
  sync_pipe(PIPE_V);
  if (a->weight && a->w.tile_cols == a->w.cols) columns_load(&s.w, 0, a->w.cols, chunk.pitch);
  return s;
}

AICORE void close_state(const state *s) {
  in_close(&s->in.in);
  in_close(&s->ds);
  in_close(&s->w.stage);
  in_close(&s->words);
  in_close(&s->arrival);
  out_close(&s->dx);
  out_close(&s->out);
}

AICORE void load_both(const state *s, tile t, int64_t r, int64_t c) {
  pair_load(&s->in, s->a->dtype, &s->a->space, &s->a->dy, &s->a->x, t, r, c);
}

/* xhat, and dy in f32, of columns [c, c + t.cols). chunk_done() ends it. */
AICORE ub_f32 chunk_of(state *s, tile t, int64_t r, int64_t c) {
  const int64_t dtype = s->a->dtype, at = s->a->w.cached ? c * dtype_bytes(dtype) / 4 : 0;
  if (!s->a->w.cached) load_both(s, t, r, c);
  const ub_f32 raw = ub_at_f32(ring_now(&s->in.in), at);
  const ub_f32 x = values_of(dtype, s->xhat, ub_at_f32(raw, s->in.apart), t);
  if (s->a->mean) {
    spread(s->work, ub_at_f32(ring_now(&s->words), s->words.elements / 2), t.rows);
    tile_op(ROW_SUB, s->xhat, x, s->work, t, true);
  }
  spread(s->work, ring_now(&s->words), t.rows);
  tile_op(ROW_MUL, s->xhat, s->a->mean ? s->xhat : x, s->work, t, true);
  return values_of(dtype, s->wide, raw, t);
}
AICORE void chunk_done(state *s) {
  if (!s->a->w.cached) in_done(&s->in.in);
}

/* The sum's share of a chunk, which is in `part` unless it is the first one. */
AICORE void add_part(row_sum sum, bool first, int64_t rows) {
  if (first) return;
  v_add_f32(sum.all, sum.all, sum.part, rows);
  sync_pipe(PIPE_V);
}

/* The rows' sums of g * xhat, and of g, over columns [col, col_end). */
AICORE void sum_products(state *s, box b, int64_t r, int64_t rows) {
  const norm_bwd_arguments *a = s->a;
  for (int64_t c = b.col; c < b.col_end; c += a->w.tile_cols) {
    const tile t = tile_of(a->dtype, rows, least(a->w.tile_cols, b.col_end - c));
    const bool first = c == b.col;
    const ub_f32 dy = chunk_of(s, t, r, c), of_g = first ? s->g.all : s->g.part;
    if (a->weight && a->w.tile_cols < a->w.cols) columns_load(&s->w, c, t.cols, t.pitch);
    if (a->mean && a->weight) {
      tile_op(ROW_MUL, s->work, dy, s->w.values, t, false);
      row_sums(of_g, s->work, t);
    } else if (a->mean) {
      row_sums_kept(of_g, s->work, dy, t);
    }
    v_mul_f32(s->work, s->xhat, dy, rows * t.pitch);
    sync_pipe(PIPE_V);
    chunk_done(s);
    if (a->weight) tile_op(ROW_MUL, s->work, s->work, s->w.values, t, false);
    row_sums(first ? s->dot.all : s->dot.part, s->work, t);
    add_part(s->dot, first, rows);
    if (a->mean) add_part(s->g, first, rows);
  }
}

/* g += ds; xhat is used up. */
AICORE void add_ds(state *s, ub_f32 g, tile t, int64_t r, int64_t c) {
  const norm_bwd_arguments *a = s->a;
  in_begin(&s->ds);
  load_tile(a->dtype, ring_now(&s->ds), &a->space, &a->ds, t, r, c);
  in_ready(&s->ds);
  v_add_f32(g, g, values_of(a->dtype, s->xhat, ring_now(&s->ds), t), t.rows * t.pitch);
  sync_pipe(PIPE_V);
  in_done(&s->ds);
}

/* dx of a chunk, and its share of dw and db. With `there`, xhat and dy are still what sum_products() made of them. The column vectors of
 * the chunk are on chip. */
AICORE void chunk_of_dx(state *s, tile t, int64_t r, int64_t c, bool there) {
  const norm_bwd_arguments *a = s->a;
  const int64_t dtype = a->dtype, n = t.rows * t.pitch;
  const bool f32 = dtype == TIGON_F32;
  const ub_f32 dy = !there ? chunk_of(s, t, r, c) : f32 ? ring_now(&s->in.in) : s->wide, dx = ring_now(&s->dx);
  out_begin(&s->dx);
  if (a->dw) {
    const bool rounds = a->casting != TIGON_CASTING_GEMMA && !f32;
    if (rounds) round_to(dtype, s->work, s->xhat, dx, n);
    v_mul_f32(s->work, rounds ? s->work : s->xhat, dy, n);
    sync_pipe(PIPE_V);
    add_column_sums(ub_at_f32(s->sum_dw, a->w.cached ? c : 0), s->work, t);
  }
  if (a->db) add_column_sums_kept(ub_at_f32(s->sum_db, a->w.cached ? c : 0), s->work, dy, t);
  const ub_f32 g = f32 ? dx : s->wide;
  spread(s->work, s->dot.all, t.rows);
  tile_op(ROW_MUL, s->xhat, s->xhat, s->work, t, true);
  if (a->weight) tile_op(ROW_MUL, g, dy, s->w.values, t, false);
  v_sub_f32(g, a->weight ? g : dy, s->xhat, n);
  if (a->mean) {
    spread(s->work, s->g.all, t.rows);
    tile_op(ROW_SUB, g, g, s->work, t, true);
  }
  spread(s->work, ring_now(&s->words), t.rows);
  tile_op(ROW_MUL, g, g, s->work, t, true);
  chunk_done(s);
  if (a->ds.data) add_ds(s, g, t, r, c);
  if (!f32) narrow(dtype, dx, g, n);
  out_ready(&s->dx);
  store_tile(dtype, &a->space, &a->dx, dx, t, r, c);
  out_done(&s->dx);
}

AICORE void load_words(state *s, int64_t r, int64_t rows) {
  const ub_f32 rstd = ring_now(&s->words);
  in_begin(&s->words);
  load_f32(rstd, s->a->rstd + r * 4, 1, rows);
  if (s->a->mean) load_f32(ub_at_f32(rstd, s->words.elements / 2), s->a->mean + r * 4, 1, rows);
  in_ready(&s->words);
}

AICORE void means_of_sums(state *s, int64_t rows) {
  const float share = 1.0f / (float)s->a->w.cols;
  v_mul_scalar_f32(s->dot.all, s->dot.all, share, round_up(rows, 8));
  if (s->a->mean) v_mul_scalar_f32(s->g.all, s->g.all, share, round_up(rows, 8));
  sync_pipe(PIPE_V);
}

/* New sums for dw and db, once those before have been stored. */
AICORE void clear_slabs(state *s, int64_t n) {
  out_begin(&s->out);
  if (s->a->dw) v_duplicate_f32(s->sum_dw, 0, n);
  if (s->a->db) v_duplicate_f32(s->sum_db, 0, n);
  sync_pipe(PIPE_V);
}
/* Columns [c, c + n) of slab `range` of each. clear_slabs() goes before. */
AICORE void store_slabs(state *s, int64_t range, int64_t c, int64_t n) {
  const norm_bwd_arguments *a = s->a;
  out_ready(&s->out);
  if (a->dw) store_f32(a->dw + (range * a->slab_pitch + c) * 4, s->sum_dw, 1, n);
  if (a->db) store_f32(a->db + (range * a->slab_pitch + c) * 4, s->sum_db, 1, n);
  out_done(&s->out);
}

/* Sums and dx of rows [r, r + rows) at once. */
AICORE void rows_at_a_time(state *s, box b, int64_t r, int64_t rows) {
  const norm_bwd_arguments *a = s->a;
  const int64_t wide = a->w.tile_cols;
  load_words(s, r, rows);
  if (a->w.cached) load_both(s, tile_of(a->dtype, rows, a->w.cols), r, 0);
  sum_products(s, b, r, rows);
  means_of_sums(s, rows);
  for (int64_t c = 0; c < a->w.cols; c += wide) {
    const tile t = tile_of(a->dtype, rows, least(wide, a->w.cols - c));
    if (a->weight && wide < a->w.cols) columns_load(&s->w, c, t.cols, t.pitch);
    chunk_of_dx(s, t, r, c, a->w.cached && wide == a->w.cols);
  }
  if (a->w.cached) in_done(&s->in.in);
  in_done(&s->words);
}

/* The sums of a row over the task's columns, [rows, sums, splits] in global memory. */
AICORE gm_ptr handed_over(const state *s, int64_t r, int64_t sum) {
  return s->a->partials + (r * (s->a->mean ? 2 : 1) + sum) * s->a->w.splits * 4;
}
AICORE void hand_over_sums(state *s, box b) {
  const norm_bwd_arguments *a = s->a;
  for (int64_t r = b.row; r < b.row_end; ++r) {
    load_words(s, r, 1);
    out_begin(&s->out);
    sum_products(s, b, r, 1);
    v_mul_scalar_f32(s->dot.part, s->dot.all, 1, 8);
    if (a->mean) v_mul_scalar_f32(s->g.part, s->g.all, 1, 8);
    out_ready(&s->out);
    store_f32(handed_over(s, r, 0) + b.split * 4, s->dot.part, 1, 1);
    if (a->mean) store_f32(handed_over(s, r, 1) + b.split * 4, s->g.part, 1, 1);
    out_done(&s->out);
    in_done(&s->words);
  }
}

/* dx of the task, panel by panel. */
AICORE void panels(state *s, box b, int64_t range) {
  const norm_bwd_arguments *a = s->a;
  for (int64_t c = b.col; c < b.col_end; c += a->w.tile_cols) {
    const tile t = tile_of(a->dtype, 1, least(a->w.tile_cols, b.col_end - c));
    if (a->weight && a->w.tile_cols < a->w.cols) columns_load(&s->w, c, t.cols, t.pitch);
    if (a->dw || a->db) clear_slabs(s, t.pitch);
    for (int64_t r = b.row; r < b.row_end; ++r) {
      load_words(s, r, 1);
      join_splits(s->dot.all, &s->arrival, handed_over(s, r, 0), a->w.splits);
      if (a->mean) join_splits(s->g.all, &s->arrival, handed_over(s, r, 1), a->w.splits);
      means_of_sums(s, 1);
      chunk_of_dx(s, t, r, c, false);
      in_done(&s->words);
    }
    if (a->dw || a->db) store_slabs(s, range, c, t.cols);
  }
}

AICORE_KERNEL(norm_bwd, norm_bwd_arguments) {
  state s = open_state(ub, a);
  const bool slabs = a->dw || a->db;
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    if (!a->partials) {
      if (slabs) clear_slabs(&s, tile_of(a->dtype, 1, a->w.cols).pitch);
      for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows)
        rows_at_a_time(&s, b, r, least(a->w.tile_rows, b.row_end - r));
      if (slabs) store_slabs(&s, t, 0, a->w.cols);
      continue;
    }
    if (a->parts & PART_SUMS) hand_over_sums(&s, b);
    if (a->parts == (PART_SUMS | PART_ROWS)) sync_pipe(PIPE_ALL); /* the sums are stored before they are read */
    if (a->parts & PART_ROWS) panels(&s, b, t / a->w.splits);
  }
  close_state(&s);
}
