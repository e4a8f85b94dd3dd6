/* Rows in groups, as in the planner's case G (group_norm). Row r is batch r % batch of group r / batch. `run` neighbouring
 * columns are a channel, with its weight and its sums. Other norms have one group and a run of 1. A channel's weight goes to its
 * columns as a scalar, or through a vector of columns where tiles have several rows or channels begin anywhere in 32 bytes of
 * UB. modulated_rms_norm's groups are ranges of rows, each with vectors of columns. */
#ifndef TIGON_ASCEND_KERNEL_CHANNELS_H
#define TIGON_ASCEND_KERNEL_CHANNELS_H

#include "ascend/kernel/rows.h"

typedef struct grouping {
  int64_t groups, batch, run;
  int64_t apart;  /* channels do not lie end to end in memory: a chunk stays within one */
  int64_t ranges; /* row r's word is word r */
} grouping;

/* The end of the chunk that begins at column c. */
AICORE int64_t chunk_end(const grouping *g, int64_t wide, int64_t c, int64_t end) {
  const int64_t to = least(end, c + wide);
  return g->apart ? least(to, (c / g->run + 1) * g->run) : to;
}
/* Rows of the tile that begins at row r: they stay within a group. */
AICORE int64_t rows_of(const grouping *g, int64_t most, int64_t r, int64_t end) {
  return least(least(most, end - r), g->batch - r % g->batch);
}
/* Where row r's word is: in [batch, groups], or in [groups, batch] of ranges. */
AICORE int64_t word_of(const grouping *g, int64_t r) { return g->ranges ? r : r % g->batch * g->groups + r / g->batch; }
/* Words of a tile's rows do not lie end to end: each has a transfer, and 32 bytes of UB. */
AICORE bool words_apart(const grouping *g, int64_t rows) { return g->groups > 1 && rows > 1 && !g->ranges; }

/* Channels of columns [c, c + n); the most of any chunk. */
AICORE int64_t channels_of(const grouping *g, int64_t c, int64_t n) { return (c + n - 1) / g->run - c / g->run + 1; }
AICORE int64_t most_channels(const grouping *g, const walk *w) {
  const int64_t channels = (w->tile_cols + g->run - 1) / g->run;
  return w->tile_cols == w->cols ? channels : least(channels + 1, w->tile_cols);
}

/* Channel i of a chunk: its columns, counted from the chunk's first one, c. */
typedef struct piece {
  int64_t from, to;
} piece;
AICORE piece piece_of(const grouping *g, int64_t c, int64_t cols, int64_t i) {
  const int64_t from = (c / g->run + i) * g->run - c;
  return (piece){from > 0 ? from : 0, least(from + g->run, cols)};
}

/* d = x op the value of each column's channel, for a chunk that begins at column c; values[0] is that of its first channel, and
 * with runs the scalar pipe has waited for them. `scratch`: a vector of columns. */
AICORE void channel_op(const grouping *g, row_op op, ub_f32 d, ub_f32 x, ub_f32 values, tile t, int64_t c,
                       ub_f32 scratch) {
  if (g->run == 1) {
    tile_op(op, d, x, values, t, false);
    return;
  }
  const int64_t count = channels_of(g, c, t.cols);
  if (t.rows == 1 && (g->run % 8 == 0 || count == 1)) {
    for (int64_t i = 0; i < count; ++i) {
      const piece p = piece_of(g, c, t.cols, i);
      const int64_t n = (i == count - 1 ? t.pitch : p.to) - p.from;
      const float value = s_read_f32(values, i);
      if (op == ROW_MUL)
        v_mul_scalar_f32(ub_at_f32(d, p.from), ub_at_f32(x, p.from), value, n);
      else
        v_add_scalar_f32(ub_at_f32(d, p.from), ub_at_f32(x, p.from), value, n);
    }
    sync_pipe(PIPE_V);
    return;
  }
  /* From the last channel to the first: each is written from the 32 bytes on in which it begins, and the one before it then
   * takes its own columns back. */
  for (int64_t i = count - 1; i >= 0; --i) {
    const piece p = piece_of(g, c, t.cols, i);
    const int64_t from = p.from / 8 * 8, to = i == count - 1 ? t.pitch : p.to;
    v_duplicate_f32(ub_at_f32(scratch, from), s_read_f32(values, i), to - from);
    sync_pipe(PIPE_V);
  }
  tile_op(op, d, x, scratch, t, false);
}

/* sum[channel - base] += the sum of a, or with `product` of a * b, over the channel's columns in all rows of a chunk that begins
 * at column c. `sums` has room for a value a channel and 7 more, `work` for a row. */
AICORE void add_channel_sums(const grouping *g, ub_f32 sum, int64_t base, ub_f32 a, ub_f32 b, bool product, tile t,
                             int64_t c, ub_f32 sums, ub_f32 work) {
  const int64_t first = c / g->run - base, skip = first % 8, count = channels_of(g, c, t.cols);
  for (int64_t r = 0; r < t.rows; ++r) {
    if (skip > 0) v_duplicate_f32(sums, 0, skip);
    sync_pipe(PIPE_V);
    for (int64_t i = 0, taken; i < count; i += taken) {
      const piece p = piece_of(g, c, t.cols, i);
      const bool whole = g->run % 8 == 0 && p.to - p.from == g->run; /* so are those after it, but for the last one */
      taken = whole ? (t.cols - p.from) / g->run : 1;
      const int64_t before = p.from % 8, n = whole ? taken * g->run : p.to - p.from + before;
      const tile of = whole ? (tile){taken, g->run, g->run} : (tile){1, n, round_up(n, 8)};
      const ub_f32 x = ub_at_f32(a, r * t.pitch + p.from - before), to = ub_at_f32(sums, skip + i);
      if (!product && before == 0) {
        row_sums_kept(to, work, x, of);
        continue;
      }
      if (product)
        v_mul_f32(work, x, ub_at_f32(b, r * t.pitch + p.from - before), n);
      else
        v_mul_scalar_f32(work, x, 1, n);
      sync_pipe(PIPE_V);
      if (before > 0) { /* those of the channel before it */
        v_duplicate_f32(work, 0, before);
        sync_pipe(PIPE_V);
      }
      row_sums(to, work, of);
    }
    const ub_f32 onto = ub_at_f32(sum, first - skip);
    v_add_f32(onto, onto, sums, skip + count);
    sync_pipe(PIPE_V);
  }
}

#endif
