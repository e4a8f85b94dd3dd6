/* Kernels of work on rows with vectors of columns and a number, whose gradients are sums over rows. A task goes panel by panel over all
 * of its rows, so that a panel's sums never leave the chip. */
#ifndef TIGON_ASCEND_KERNEL_COLUMNS_H
#define TIGON_ASCEND_KERNEL_COLUMNS_H

#include "ascend/kernel/channels.h"
#include "ascend/kernel/norm.h"
#include "ascend/kernel/ordered.h"

/* tigon_columns_problem on the device. */
typedef struct columns_arguments {
  walk w;
  gm_space space;
  gm_rows in[2], out;
  gm_ptr number, vector[2]; /* [1]; [cols], the second may be NULL */
  gm_ptr slabs, words;      /* [row ranges, 2, cols] f32; the number's sum of each task f32; NULL: no sums are wanted */
  int64_t number_dtype, vector_dtype[2], dtype;
} columns_arguments;

enum { COLUMNS_WORK = 4 };

/* value[i]: input i in f32; result: where the output is worked out in f32. Backward adds to sum[], which has the vectors' gradients,
 * and by add_to_number() to the number's. */
typedef struct columns_state {
  const columns_arguments *a;
  bool backward, resident; /* the vectors of all columns are on chip */
  ring in, out, sums_out;
  int64_t elements; /* f32 elements of one input's tile in a buffer */
  int64_t pitch;    /* pitch of a panel */
  float number;
  columns vector[2];
  ub_f32 wide[2], own, value[2], work[COLUMNS_WORK], result, sum[2], total, part;
  int64_t task, row, col; /* the tile that is worked on */
  box b;
  tile t;
} columns_state;

/* `work`: tiles that the formula takes besides; the first also stages the vectors of a whole row. */
AICORE columns_state columns_open(ub_arena *ub, const columns_arguments *a, bool backward, int work) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const int64_t bytes = round_up(tile_bytes(a->dtype, chunk), UB_BLOCK), n = chunk.rows * chunk.pitch;
  const bool f32 = a->dtype == TIGON_F32, resident = a->w.tile_cols == a->w.cols;
  columns_state s = {
      .a = a, .backward = backward, .resident = resident, .elements = bytes / 4, .pitch = chunk.pitch, .task = -1};
  s.in = ring_of(ub, 0, 2, (backward ? 2 : 1) * bytes);
  s.out = ring_of(ub, 0, 2, bytes);
  for (int i = 0; i < work; ++i) s.work[i] = ub_alloc_f32(ub, n);
  for (int i = 0; i < (backward ? 2 : 1) && !f32; ++i) s.wide[i] = ub_alloc_f32(ub, n);
  s.own = ub_alloc_f32(ub, f32 ? 0 : n);
  for (int i = 0; i < (backward ? 1 : 2); ++i) {
    s.vector[i] =
        columns_of(ub, resident ? 2 : 2 + i, a->vector[i], a->vector_dtype[i], 0, s.pitch, s.work[0], resident);
    if (i == 0 || !resident) in_open(&s.vector[i].stage);
  }
  for (int i = 0; i < 2; ++i) s.sum[i] = ub_alloc_f32(ub, backward ? s.pitch : 0);
  s.total = ub_alloc_f32(ub, 8);
  s.part = ub_alloc_f32(ub, 8);
  s.sums_out = (ring){s.total, 0, 2, 1, 0};
  read_numbers(ub, 4, a->number, a->number_dtype, 1, &s.number);
  in_open(&s.in);
  out_open(&s.out);
  out_open(&s.sums_out);
  return s;
}

AICORE void columns_close(const columns_state *s) {
  in_close(&s->in);
  in_close(&s->vector[0].stage);
  if (!s->backward && !s->resident) in_close(&s->vector[1].stage);
  out_close(&s->out);
  out_close(&s->sums_out);
}

AICORE void columns_vectors(columns_state *s, int64_t c, int64_t cols) {
  for (int i = 0; i < (s->backward ? 1 : 2); ++i)
    if (s->a->vector[i]) columns_load(&s->vector[i], c, cols, s->pitch);
}

/* Adds all elements of the tile x, which is used up, to the number's sum. */
AICORE void add_to_number(columns_state *s, ub_f32 x) {
  fold_rows(x, s->t);
  row_sums(s->part, x, (tile){1, s->t.cols, s->t.pitch});
  add(s->total, s->total, s->part, 1);
}

AICORE int64_t panel_cols(const columns_state *s) { return least(s->a->w.tile_cols, s->b.col_end - s->col); }

/* A panel's sums begin once those before have been stored. */
AICORE void begin_panel(columns_state *s) {
  s->row = s->b.row;
  if (!s->resident) columns_vectors(s, s->col, panel_cols(s));
  if (!s->a->slabs) return;
  out_begin(&s->sums_out);
  for (int i = 0; i < 2; ++i) duplicate(s->sum[i], 0, s->pitch);
  if (s->col == s->b.col) duplicate(s->total, 0, 8);
}
AICORE void end_panel(columns_state *s) {
  const int64_t slab = s->task / s->a->w.splits, n = panel_cols(s), last = s->col + n == s->b.col_end;
  if (!s->a->slabs) return;
  out_ready(&s->sums_out);
  for (int i = 0; i < 2; ++i) store_f32(s->a->slabs + ((2 * slab + i) * s->a->w.cols + s->col) * 4, s->sum[i], 1, n);
  if (last) store_f32(s->a->words + s->task * 4, s->total, 1, 1);
  out_done(&s->sums_out);
}

/* The next tile's place; false after the last one. */
AICORE bool columns_step(columns_state *s) {
  const walk *w = &s->a->w;
  const bool first = s->task < 0;
  if (!first) {
    s->row += w->tile_rows;
    if (s->row < s->b.row_end) return true;
    end_panel(s);
    s->col += w->tile_cols;
  } else if (s->resident) {
    columns_vectors(s, 0, w->cols);
  }
  if (first || s->col >= s->b.col_end) {
    s->task = first ? block_index() : s->task + block_count();
    if (s->task >= w->tasks) return false;
    s->b = walk_task(w, s->task);
    s->col = s->b.col;
  }
  begin_panel(s);
  return true;
}

AICORE bool columns_next(columns_state *s) {
  const columns_arguments *a = s->a;
  if (!columns_step(s)) return false;
  s->t = tile_of(a->dtype, least(a->w.tile_rows, s->b.row_end - s->row), panel_cols(s));
  in_begin(&s->in);
  for (int i = 0; i < (s->backward ? 2 : 1); ++i)
    load_tile(a->dtype, ub_at_f32(ring_now(&s->in), i * s->elements), &a->space, &a->in[i], s->t, s->row, s->col);
  in_ready(&s->in);
  for (int i = 0; i < (s->backward ? 2 : 1); ++i)
    s->value[i] = values_of(a->dtype, s->wide[i], ub_at_f32(ring_now(&s->in), i * s->elements), s->t);
  out_begin(&s->out);
  s->result = a->dtype == TIGON_F32 ? ring_now(&s->out) : s->own;
  return true;
}

AICORE void columns_end(columns_state *s) {
  const columns_arguments *a = s->a;
  in_done(&s->in);
  if (a->dtype != TIGON_F32) narrow(a->dtype, ring_now(&s->out), s->result, s->t.rows * s->t.pitch);
  out_ready(&s->out);
  store_tile(a->dtype, &a->space, &a->out, ring_now(&s->out), s->t, s->row, s->col);
  out_done(&s->out);
}

/* A kernel that works on each tile by formula(&s). */
#define COLUMNS_KERNEL(name, backward, work, formula)      \
  void name(ub_arena *ub, const void *arguments);          \
  AICORE_KERNEL(name, columns_arguments) {                 \
    columns_state s = columns_open(ub, a, backward, work); \
    while (columns_next(&s)) {                             \
      formula(&s);                                         \
      columns_end(&s);                                     \
    }                                                      \
    columns_close(&s);                                     \
  }

#endif
