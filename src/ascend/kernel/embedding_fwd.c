/* embedding forward: y[n] = table[idx[n]], a row of zeros where idx[n] is out of range. The scalar pipe reads the indices of a tile
 * while the one before is moved; rows go in and out through the same buffer. */
#include "ascend/kernel/embedding.h"

#include "ascend/kernel/scalar.h"

typedef struct state {
  const embedding_fwd_arguments *a;
  ring rows;
  ring indices;
  ub_f32 zeros;
  bool out_of_range;
} state;

/* The indices of the tile after, into the buffer that the scalar pipe no longer reads. */
AICORE void load_indices(const state *s, int64_t r, int64_t rows) {
  const int64_t words = index_words(s->a->idx_dtype);
  loads_after_scalar();
  load_f32(ring_now(&s->indices), s->a->idx + r * words * 4, 1, rows * words);
}

AICORE bool is_legal(const state *s, ub_f32 indices, int64_t i) {
  const int64_t index = s_read_index(s->a->idx_dtype, indices, i);
  return index >= 0 && index < s->a->vocab;
}

/* Columns [c, c + t.cols) of the rows whose indices are there. */
AICORE void move_tile(state *s, ub_f32 indices, tile t, int64_t r, int64_t c) {
  const embedding_fwd_arguments *a = s->a;
  const int64_t size = dtype_bytes(a->dtype), row = t.pitch * size / 4;
  const ub_f32 at = ring_now(&s->rows);
  sync_wait(PIPE_MTE3, PIPE_MTE2, s->rows.at);
  for (int64_t i = 0; i < t.rows; ++i) {
    const int64_t index = s_read_index(a->idx_dtype, indices, i);
    if (index >= 0 && index < a->vocab)
      load(a->dtype, ub_at_f32(at, i * row), a->table + (index * a->table_pitch + c) * size, 1, t.cols);
    else
      s->out_of_range = true;
  }
  sync_set(PIPE_MTE2, PIPE_MTE3, s->rows.at);
  sync_wait(PIPE_MTE2, PIPE_MTE3, s->rows.at);
  for (int64_t i = 0, run; i < t.rows; i += run) {
    const bool legal = is_legal(s, indices, i);
    for (run = 1; legal && i + run < t.rows && is_legal(s, indices, i + run);) ++run;
    const tile part = {run, t.cols, t.pitch};
    store_tile(a->dtype, &a->space, &a->y, legal ? ub_at_f32(at, i * row) : s->zeros, part, r + i, c);
  }
  sync_set(PIPE_MTE3, PIPE_MTE2, s->rows.at);
  ring_turn(&s->rows);
}

AICORE void move_task(state *s, box b) {
  const embedding_fwd_arguments *a = s->a;
  const int64_t high = a->w.tile_rows, wide = a->w.tile_cols;
  load_indices(s, b.row, least(high, b.row_end - b.row));
  for (int64_t r = b.row; r < b.row_end; r += high) {
    const ub_f32 indices = ring_now(&s->indices);
    scalar_after_loads();
    ring_turn(&s->indices);
    if (r + high < b.row_end) load_indices(s, r + high, least(high, b.row_end - r - high));
    for (int64_t c = b.col; c < b.col_end; c += wide)
      move_tile(s, indices, tile_of(a->dtype, least(high, b.row_end - r), least(wide, b.col_end - c)), r, c);
  }
}

AICORE_KERNEL(embedding_fwd, embedding_fwd_arguments) {
  const tile t = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  state s = {.a = a};
  s.rows = ring_of(ub, 0, 2, tile_bytes(a->dtype, t));
  s.indices = ring_of(ub, 0, 2, t.rows * index_words(a->idx_dtype) * 4);
  s.zeros = ub_alloc_f32(ub, t.pitch * dtype_bytes(a->dtype) / 4);
  const ub_f32 flag = ub_alloc_f32(ub, 8);
  v_duplicate_f32(s.zeros, 0, t.pitch * dtype_bytes(a->dtype) / 4);
  sync_set(PIPE_V, PIPE_MTE3, 0);
  sync_wait(PIPE_V, PIPE_MTE3, 0);
  for (int i = 0; i < s.rows.count; ++i) sync_set(PIPE_MTE3, PIPE_MTE2, i);
  for (int64_t task = block_index(); task < a->w.tasks; task += block_count()) move_task(&s, walk_task(&a->w, task));
  for (int i = 0; i < s.rows.count; ++i) sync_wait(PIPE_MTE3, PIPE_MTE2, i);
  if (!a->flags) return;
  s_write_i32(flag, 0, s.out_of_range);
  stores_after_scalar();
  store_f32(a->flags + block_index() * 4, flag, 1, 1);
}

AICORE_KERNEL(error_flag, error_flag_arguments) {
  const ub_f32 flags = ub_alloc_f32(ub, round_up(a->count, 8)), error = ub_alloc_f32(ub, 8);
  bool any = false;
  load_f32(flags, a->flags, 1, a->count);
  scalar_after_loads();
  for (int64_t i = 0; i < a->count; ++i) any = any || s_read_i32(flags, i);
  if (!any) return;
  s_write_i32(error, 0, 1);
  stores_after_scalar();
  store_f32(a->error, error, 1, 1);
}
