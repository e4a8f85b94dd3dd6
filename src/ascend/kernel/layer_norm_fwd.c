/* layer_norm and group_norm forward: y = (x - mean) * rstd * w + b, rstd = 1 / sqrt(variance + eps). One walk for all of the
 * plan's cases: a tile's rows are on chip at once (B to D) or come by in chunks of columns, once for the moments and once for y
 * (E, F). */
#include "ascend/kernel/layer_norm.h"
#include "ascend/kernel/moments.h"
#include "ascend/kernel/norm.h"

typedef struct state {
  const layer_norm_fwd_arguments *a;
  bool whole;    /* a tile has whole rows: x - mean stays where the moments left it */
  bool resident; /* the weights of all columns are on chip, those of one group at a time */
  int64_t group; /* whose; -1: none yet */
  ring x, y, arrival;
  ring statistics; /* mean, then rstd */
  ring out;        /* the moments, when they are handed over */
  columns w, b;
  moments all, part;    /* moments of all chunks, and of one chunk where there are several */
  ub_f32 work, more;    /* f32 tiles; `more` with 16-bit dtypes alone */
  ub_f32 packed;        /* as `statistics`, where those have 32 bytes a row */
  int64_t words, pitch; /* words of an array of row words; pitch of a vector of channels */
} state;

AICORE state open_state(ub_arena *ub, const layer_norm_fwd_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const bool resident = a->w.tile_cols == a->w.cols, apart = words_apart(&a->groups, a->w.tile_rows);
  state s = {.a = a, .whole = a->w.cached && resident, .resident = resident, .group = -1};
  s.words = round_up(a->w.tile_rows, 8);
  s.pitch = tile_of(a->dtype, 1, most_channels(&a->groups, &a->w)).pitch;
  s.x = ring_of(ub, 0, a->w.cached ? a->w.buffers : 2, tile_bytes(a->dtype, kept));
  s.y = ring_of(ub, 0, 2, tile_bytes(a->dtype, chunk));
  s.statistics = ring_of(ub, 2, 2, 2 * s.words * (apart ? UB_BLOCK : 4));
  s.packed = ub_alloc_f32(ub, apart ? 2 * s.words : 0);
  if (apart) v_duplicate_f32(s.packed, 0, 2 * s.words);
  s.all = moments_of(ub, s.words);
  s.out = (ring){s.all.center, 0, 4, 1, 0};
  if (!resident) s.part = moments_of(ub, s.words);
  s.work = ub_alloc_f32(ub, work_elements(chunk));
  s.more = a->dtype == TIGON_F32 ? s.work : ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  s.arrival = ring_of(ub, 3, 1, a->parts & PART_SUMS ? 0 : MOMENT_WORDS * round_up(a->w.splits, 8) * 4);
  s.w = columns_of(ub, 2, a->weight, a->w_dtype, 0, s.pitch, s.work, resident);
  s.b = columns_of(ub, resident ? 2 : 4, a->bias, a->b_dtype, 0, s.pitch, s.work, resident); /* one stage */
  in_open(&s.x);
  in_open(&s.w.stage);
  if (!resident) in_open(&s.b.stage);
  in_open(&s.arrival);
  out_open(&s.y);
  out_open(&s.statistics);
  out_open(&s.out);
  return s;
}

AICORE void close_state(const state *s) {
  in_close(&s->x);
  in_close(&s->w.stage);
  if (s->b.stage.id != s->w.stage.id) in_close(&s->b.stage);
  in_close(&s->arrival);
  out_close(&s->y);
  out_close(&s->statistics);
  out_close(&s->out);
}

/* Weight and bias of the channels of columns [c, c + cols) of a group. */
AICORE void load_vectors(state *s, int64_t group, int64_t c, int64_t cols) {
  const grouping *g = &s->a->groups;
  const int64_t first = group * (s->a->w.cols / g->run) + c / g->run, count = channels_of(g, c, cols);
  if (!s->a->weight && !s->a->bias) return;
  if (g->run > 1) vector_waits();
  if (s->a->weight) columns_load(&s->w, first, count, s->pitch);
  if (s->a->bias) columns_load(&s->b, first, count, s->pitch);
  if (g->run > 1) scalar_waits();
}

/* Columns [c, c + t.cols) of rows from r on, in their dtype: from what is cached, or loaded. chunk_done() ends it. */
AICORE ub_f32 chunk_of(state *s, tile t, int64_t r, int64_t c) {
  const layer_norm_fwd_arguments *a = s->a;
  if (a->w.cached) return ub_at_f32(ring_now(&s->x), c * dtype_bytes(a->dtype) / 4);
  in_begin(&s->x);
  load_tile(a->dtype, ring_now(&s->x), &a->space, &a->x, t, r, c);
  in_ready(&s->x);
  return ring_now(&s->x);
}
AICORE void chunk_done(state *s) {
  if (!s->a->w.cached) in_done(&s->x);
}

/* The f32 tile that differences from the mean are worked out in: a buffer of y, or with 16-bit dtypes `more`. */
AICORE ub_f32 differences(const state *s) { return s->a->dtype == TIGON_F32 ? ring_now(&s->y) : s->more; }

/* The moments of the rows over columns [col, col_end). */
AICORE void sum_moments(state *s, box b, int64_t r, int64_t rows) {
  const layer_norm_fwd_arguments *a = s->a;
  for (int64_t c = b.col, end; c < b.col_end; c = end) {
    end = chunk_end(&a->groups, a->w.tile_cols, c, b.col_end);
    const tile t = tile_of(a->dtype, rows, end - c);
    const ub_f32 raw = chunk_of(s, t, r, c);
    out_begin(&s->y);
    find_moments(c == b.col ? s->all : s->part, differences(s), values_of(a->dtype, s->more, raw, t), s->work, t);
    if (s->whole) return;
    chunk_done(s);
    out_ready(&s->y); /* a scratch buffer this time: nothing is stored */
    out_done(&s->y);
    if (c > b.col) join_moments(s->all, c - b.col, s->part, t.cols, s->work, round_up(rows, 8));
  }
  end_joins(s->all, round_up(rows, 8));
}

/* mean and rstd of the rows, and stores them. rstd is what comes back. */
AICORE ub_f32 find_statistics(state *s, box b, int64_t r, int64_t rows) {
  const layer_norm_fwd_arguments *a = s->a;
  const bool apart = words_apart(&a->groups, a->w.tile_rows);
  const int64_t words = round_up(rows, 8), step = apart ? UB_BLOCK / 4 : 1;
  const ub_f32 out = ring_now(&s->statistics), mean = apart ? s->packed : out, rstd = ub_at_f32(mean, s->words);
  const ub_f32 to[] = {out, ub_at_f32(out, s->words * step)}, from[] = {mean, rstd};
  const gm_ptr store_to[] = {a->mean, a->rstd};
  out_begin(&s->statistics);
  v_add_f32(mean, s->all.center, s->all.rest, words);
  divide_sums(s->all.squares, rstd, a->w.cols, words);
  inverse_root(rstd, s->all.squares, a->eps, words);
  for (int i = 0; i < 2 && apart; ++i) spread(to[i], from[i], rows);
  out_ready(&s->statistics);
  for (int i = 0; i < 2; ++i) {
    if (!store_to[i] || b.col > 0) continue;
    if (!apart) store_f32(store_to[i] + word_of(&a->groups, r) * 4, to[i], 1, rows);
    for (int64_t k = 0; k < rows && apart; ++k)
      store_f32(store_to[i] + word_of(&a->groups, r + k) * 4, ub_at_f32(to[i], step * k), 1, 1);
  }
  return rstd;
}

AICORE void normalise(state *s, box b, ub_f32 rstd, int64_t r, int64_t rows) {
  const layer_norm_fwd_arguments *a = s->a;
  const grouping *g = &a->groups;
  const int64_t dtype = a->dtype, group = r / g->batch;
  if (s->resident && group != s->group) {
    stage_again(&s->w.stage);
    load_vectors(s, group, 0, a->w.cols);
  }
  s->group = group;
  for (int64_t c = b.col, end; c < b.col_end; c = end) {
    end = chunk_end(g, a->w.tile_cols, c, b.col_end);
    const tile t = tile_of(dtype, rows, end - c);
    const ub_f32 y = ring_now(&s->y), d = differences(s);
    if (!s->resident) load_vectors(s, group, c, t.cols);
    if (!s->whole) {
      const ub_f32 raw = chunk_of(s, t, r, c);
      out_begin(&s->y);
      subtract_rows(d, values_of(dtype, s->more, raw, t), s->all.center, s->work, t);
      chunk_done(s);
      subtract_rows(d, d, s->all.rest, s->work, t);
    }
    spread(s->work, rstd, rows);
    tile_op(ROW_MUL, d, d, s->work, t, true);
    if (a->weight) channel_op(g, ROW_MUL, d, d, s->w.values, t, c, s->work);
    if (a->bias) channel_op(g, ROW_ADD, d, d, s->b.values, t, c, s->work);
    if (dtype != TIGON_F32) narrow(dtype, y, d, t.rows * t.pitch);
    out_ready(&s->y);
    store_tile(dtype, &a->space, &a->y, y, t, r, c);
    out_done(&s->y);
  }
}

/* The moments of row r over the task's columns, to global memory. */
AICORE void hand_over_moments(state *s, box b, int64_t r) {
  const layer_norm_fwd_arguments *a = s->a;
  const ub_f32 count = s->statistics.start;
  const ub_f32 words[MOMENT_WORDS] = {s->all.center, s->all.rest, s->all.squares, count};
  out_begin(&s->out);
  sum_moments(s, b, r, 1);
  v_duplicate_f32(count, (float)(b.col_end - b.col), 8);
  out_ready(&s->out);
  for (int i = 0; i < MOMENT_WORDS; ++i)
    store_f32(a->partials + ((r * MOMENT_WORDS + i) * a->w.splits + b.split) * 4, words[i], 1, 1);
  out_done(&s->out);
}

AICORE void rows_of_tile(state *s, box b, int64_t r, int64_t rows) {
  const layer_norm_fwd_arguments *a = s->a;
  if (a->w.cached) {
    in_begin(&s->x);
    load_tile(a->dtype, ring_now(&s->x), &a->space, &a->x, tile_of(a->dtype, rows, a->w.cols), r, 0);
    in_ready(&s->x);
  }
  if (a->parts & PART_SUMS)
    sum_moments(s, b, r, rows);
  else
    join_split_moments(s->all, &s->arrival, a->partials, a->w.splits, a->w.cols, r, s->work);
  if (s->whole) in_done(&s->x);
  normalise(s, b, find_statistics(s, b, r, rows), r, rows);
  out_done(&s->statistics);
  if (a->w.cached && !s->whole) in_done(&s->x);
}

AICORE_KERNEL(layer_norm_fwd, layer_norm_fwd_arguments) {
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row, rows; r < b.row_end; r += rows) {
      rows = rows_of(&a->groups, a->w.tile_rows, r, b.row_end);
      if (a->parts & PART_ROWS)
        rows_of_tile(&s, b, r, rows);
      else
        hand_over_moments(&s, b, r);
    }
  }
  close_state(&s);
}
