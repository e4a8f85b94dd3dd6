/* A core at work on the rows of cross_entropy: its state, the chunks of logits that come by, and the labels in them. */
#ifndef TIGON_ASCEND_KERNEL_CROSS_ENTROPY_CHUNK_H
#define TIGON_ASCEND_KERNEL_CROSS_ENTROPY_CHUNK_H

#include "ascend/kernel/cross_entropy_row.h"

/* Which part of the logits is loaded next. */
typedef struct cursor {
  box b;
  int64_t task, row, col;
  int pass, passes; /* over a row that comes by in chunks */
  int pending;      /* loaded and not worked on yet */
  int at;           /* the ring's next buffer for a load */
  bool more;
} cursor;

typedef struct state {
  const cross_entropy_arguments *a;
  row_words w;
  ring x, out;
  cursor next;
  ub_f32 z, first, second, third; /* f32 tiles; of the weights, too: third */
  ub_f32 splits, shifts;          /* what the splits of a row handed over */
  bool stored;                    /* a tile's outputs are on their way */
} state;

/* ---- loads, ahead of the work ---- */

AICORE void begin_task(cursor *k, const walk *w, int64_t task) {
  k->task = task;
  k->more = task < w->tasks && k->passes > 0 && w->cols > 0;
  if (!k->more) return;
  k->b = walk_task(w, task);
  k->row = k->b.row;
  k->col = k->b.col;
}

AICORE void load_next(state *s) {
  const cross_entropy_arguments *a = s->a;
  const walk *w = &a->w;
  cursor *k = &s->next;
  const int64_t rows = least(w->tile_rows, k->b.row_end - k->row);
  const tile t = tile_of(a->dtype, rows, w->cached ? w->cols : least(w->tile_cols, k->b.col_end - k->col));
  ahead_begin(&s->x, k->at);
  load_tile(a->dtype, ring_buffer(&s->x, k->at), &a->space, &a->logits, t, k->row, k->col);
  ahead_ready(&s->x, k->at);
  k->at = k->at + 1 < s->x.count ? k->at + 1 : 0;
  ++k->pending;
  k->col += t.cols;
  if (k->col < k->b.col_end) return;
  k->col = k->b.col;
  if (++k->pass < k->passes && !w->cached) return;
  k->pass = 0;
  k->row += rows;
  if (k->row >= k->b.row_end) begin_task(k, w, k->task + block_count());
}

/* The next tile of x in its dtype is there after take(), until done(). */
AICORE void take(state *s) {
  while (s->next.more && s->next.pending < s->x.count) load_next(s);
  in_take(&s->x);
}
AICORE void done(state *s) {
  in_done(&s->x);
  --s->next.pending;
}

/* x of columns [c, c + t.cols) in its dtype, and in f32. chunk_done() ends it. */
AICORE ub_f32 raw_chunk(const state *s, int64_t c) {
  return ub_at_f32(ring_now(&s->x), s->a->w.cached ? c * dtype_bytes(s->a->dtype) / 4 : 0);
}
AICORE ub_f32 chunk_of(state *s, tile t, int64_t c) {
  if (!s->a->w.cached) take(s);
  return values_of(s->a->dtype, s->z, raw_chunk(s, c), t);
}
AICORE void chunk_done(state *s) {
  if (!s->a->w.cached) done(s);
}

/* ---- weights and labels of a chunk ---- */

/* The weights of columns [c, c + t.cols), in `third`. */
AICORE void load_weights(const state *s, tile t, int64_t c) {
  loads_after_vectors();
  load_f32(s->third, s->a->weight + (s->a->panel_begin + c) * 4, 1, t.cols);
  vectors_after_loads();
  const int64_t filled = round_up(t.cols, 8);
  if (filled < t.pitch) v_duplicate_f32(ub_at_f32(s->third, filled), 0, t.pitch - filled);
  sync_pipe(PIPE_V);
}

/* The label's column in a chunk from c on, -1 when it is elsewhere. */
AICORE int64_t label_column(const state *s, int64_t i, tile t, int64_t c) {
  const int64_t at = label_of(&s->w, i) - s->a->panel_begin - c;
  return label_of(&s->w, i) >= 0 && at >= 0 && at < t.cols ? at : -1;
}
AICORE bool has_labels(const state *s, tile t, int64_t c) {
  for (int64_t i = 0; i < t.rows; ++i)
    if (label_column(s, i, t, c) >= 0) return true;
  return false;
}
AICORE void take_labels(const state *s, ub_f32 x, tile t, int64_t c) {
  if (!has_labels(s, t, c)) return;
  scalar_after_vectors();
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t at = label_column(s, i, t, c);
    if (at >= 0) set_word(&s->w, LABEL_X, i, s_read_f32(x, i * t.pitch + at));
  }
  vectors_after_scalar();
}

#endif
