/* Code that kernels over rows share: the walk over a plan's tasks, loads and stores of tiles of rows, alternating buffers, and
 * casts. Also the operations between a tile, a value per row and a vector of columns. A tile has `rows` rows of `cols` columns,
 * `pitch` elements apart. The pitch is a multiple of 32 bytes in the row's dtype, even in f32 tiles. So a cast is one call. What
 * lies between cols and pitch is 0 in what was loaded; it is worked on and never stored. */
#ifndef TIGON_ASCEND_KERNEL_ROWS_H
#define TIGON_ASCEND_KERNEL_ROWS_H

#include <tigon/base.h>

#include "ascend/aicore.h"

/* ---- the plan ---- */

/* Parts of a call. A row that is split over cores has its sums handed over between two launches. */
enum { PART_SUMS = 1, PART_ROWS = 2 };

/* The part of tigon_plan that a kernel needs. */
typedef struct walk {
  int64_t rows, cols, tasks, row_tasks, splits, col_unit;
  int64_t tile_rows, tile_cols;
  int64_t cached;  /* 1: all columns of a tile's rows are on chip at once (cases B to D) */
  int64_t buffers; /* buffers of a cached row */
  int64_t groups;  /* groups of rows, of which a task has one; 1 without groups */
} walk;

typedef struct box {
  int64_t row, row_end, col, col_end, split;
} box;

AICORE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
AICORE int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }
AICORE int64_t range_begin(int64_t n, int64_t count, int64_t i) { return i * (n / count) + least(i, n % count); }

/* Task t, as tigon_plan_task() cuts it. */
AICORE box walk_task(const walk *w, int64_t t) {
  const int64_t units = (w->cols - 1) / w->col_unit + 1, split = t % w->splits;
  const int64_t rows = w->rows / w->groups, ranges = w->row_tasks / w->groups;
  const int64_t range = t / w->splits % ranges, first = t / w->splits / ranges * rows;
  return (box){first + range_begin(rows, ranges, range), first + range_begin(rows, ranges, range + 1),
               range_begin(units, w->splits, split) * w->col_unit,
               least(w->cols, range_begin(units, w->splits, split + 1) * w->col_unit), split};
}

/* ---- tensors ---- */

/* Rows in global memory, as tigon_row_space and tigon_rows have them; pitches in elements. A row's columns lie end to end, or
 * in runs with a pitch of their own (run > 1). */
typedef struct gm_rows {
  gm_ptr data;
  int64_t pitch[3], run_pitch;
} gm_rows;
typedef struct gm_space {
  int64_t rows, middle, inner, run;
} gm_space;

typedef struct tile {
  int64_t rows, cols, pitch;
} tile;

AICORE int64_t dtype_bytes(int64_t dtype) {
  return dtype == TIGON_F32 ? 4 : dtype == TIGON_I8 || dtype == TIGON_F8E4M3 ? 1 : 2;
}
AICORE tile tile_of(int64_t dtype, int64_t rows, int64_t cols) {
  return (tile){rows, cols, round_up(cols, UB_BLOCK / dtype_bytes(dtype))};
}
/* Bytes of a tile in its dtype, and elements of an f32 tile, which also has room for a block a row (spread()). */
AICORE int64_t tile_bytes(int64_t dtype, tile t) { return t.rows * t.pitch * dtype_bytes(dtype); }
AICORE int64_t work_elements(tile t) {
  const int64_t blocks = round_up(t.rows, 8) * 8;
  return t.rows * t.pitch > blocks ? t.rows * t.pitch : blocks;
}

AICORE gm_ptr row_at(const gm_space *s, const gm_rows *t, int64_t size, int64_t r, int64_t c) {
  const int64_t k = r % s->inner, ij = r / s->inner, at = s->run > 1 ? c / s->run * t->run_pitch + c % s->run : c;
  return t->data + (ij / s->middle * t->pitch[0] + ij % s->middle * t->pitch[1] + k * t->pitch[2] + at) * size;
}

AICORE void load(int64_t dtype, ub_f32 to, gm_ptr from, int64_t rows, int64_t cols) {
  if (dtype == TIGON_F32)
    load_f32(to, from, rows, cols);
  else if (dtype == TIGON_BF16)
    load_bf16(ub_as_bf16(to), from, rows, cols);
  else
    load_f16(ub_as_f16(to), from, rows, cols);
}
AICORE void store(int64_t dtype, gm_ptr to, ub_f32 from, int64_t rows, int64_t cols) {
  if (dtype == TIGON_F32)
    store_f32(to, from, rows, cols);
  else if (dtype == TIGON_BF16)
    store_bf16(to, ub_as_bf16(from), rows, cols);
  else if (dtype_bytes(dtype) == 1)
    store_i8(to, ub_as_i8(from), rows, cols);
  else
    store_f16(to, ub_as_f16(from), rows, cols);
}

enum { MOST_BURSTS = 4095 };

/* Rows that one transfer takes: all that lie end to end. Rows with a pitch go one by one: documents differ on the unit of a
 * gap in global memory. */
AICORE int64_t rows_at_once(const gm_space *s, const gm_rows *t, int64_t cols) {
  return s->inner == s->rows && t->pitch[2] == cols ? MOST_BURSTS : 1;
}
/* Columns [c, c + t.cols) of rows [r, r + t.rows). */
AICORE void load_tile(int64_t dtype, ub_f32 to, const gm_space *s, const gm_rows *from, tile t, int64_t r, int64_t c) {
  const int64_t size = dtype_bytes(dtype), most = rows_at_once(s, from, t.cols);
  for (int64_t i = 0; i < t.rows; i += most)
    load(dtype, ub_at_f32(to, i * t.pitch * size / 4), row_at(s, from, size, r + i, c), least(most, t.rows - i),
         t.cols);
}
AICORE void store_tile(int64_t dtype, const gm_space *s, const gm_rows *to, ub_f32 from, tile t, int64_t r, int64_t c) {
  const int64_t size = dtype_bytes(dtype), most = rows_at_once(s, to, t.cols);
  for (int64_t i = 0; i < t.rows; i += most)
    store(dtype, row_at(s, to, size, r + i, c), ub_at_f32(from, i * t.pitch * size / 4), least(most, t.rows - i),
          t.cols);
}

/* ---- buffers by turns: while one is worked on, the next is loaded and the one before stored ---- */

typedef struct ring {
  ub_f32 start;
  int64_t elements;  /* f32 elements of a buffer */
  int id, count, at; /* flags [id, id + count) of its pipes are its own */
} ring;

AICORE ring ring_of(ub_arena *ub, int id, int64_t count, int64_t bytes) {
  const int64_t elements = round_up(bytes, UB_BLOCK) / 4;
  return (ring){ub_alloc_f32(ub, count * elements), elements, id, (int)count, 0};
}
AICORE ub_f32 ring_now(const ring *r) { return ub_at_f32(r->start, r->at * r->elements); }
AICORE void ring_turn(ring *r) { r->at = r->at + 1 < r->count ? r->at + 1 : 0; }

/* A ring of inputs: open .. { begin, loads, ready, work, done } .. close. */
AICORE void in_open(const ring *r) {
  for (int i = 0; i < r->count; ++i) sync_set(PIPE_V, PIPE_MTE2, r->id + i);
}
AICORE void in_begin(const ring *r) { sync_wait(PIPE_V, PIPE_MTE2, r->id + r->at); }
AICORE void in_ready(const ring *r) {
  sync_set(PIPE_MTE2, PIPE_V, r->id + r->at);
  sync_wait(PIPE_MTE2, PIPE_V, r->id + r->at);
}
AICORE void in_done(ring *r) {
  sync_set(PIPE_V, PIPE_MTE2, r->id + r->at);
  ring_turn(r);
}
AICORE void in_close(const ring *r) {
  for (int i = 0; i < r->count; ++i) sync_wait(PIPE_V, PIPE_MTE2, r->id + i);
}

/* The same with loads ahead of the work, where the scalar pipe waits for the work and no load must wait for that:
 * open .. { ahead_begin, loads into ring_buffer, ahead_ready } for any free buffer, { in_take, work, done } in turns .. close. */
AICORE ub_f32 ring_buffer(const ring *r, int at) { return ub_at_f32(r->start, at * r->elements); }
AICORE void ahead_begin(const ring *r, int at) { sync_wait(PIPE_V, PIPE_MTE2, r->id + at); }
AICORE void ahead_ready(const ring *r, int at) { sync_set(PIPE_MTE2, PIPE_V, r->id + at); }
AICORE void in_take(const ring *r) { sync_wait(PIPE_MTE2, PIPE_V, r->id + r->at); }

/* A ring of outputs: open .. { begin, work, ready, stores, done } .. close. */
AICORE void out_open(const ring *r) {
  for (int i = 0; i < r->count; ++i) sync_set(PIPE_MTE3, PIPE_V, r->id + i);
}
AICORE void out_begin(const ring *r) { sync_wait(PIPE_MTE3, PIPE_V, r->id + r->at); }
AICORE void out_ready(const ring *r) {
  sync_set(PIPE_V, PIPE_MTE3, r->id + r->at);
  sync_wait(PIPE_V, PIPE_MTE3, r->id + r->at);
}
AICORE void out_done(ring *r) {
  sync_set(PIPE_MTE3, PIPE_V, r->id + r->at);
  ring_turn(r);
}
AICORE void out_close(const ring *r) {
  for (int i = 0; i < r->count; ++i) sync_wait(PIPE_MTE3, PIPE_V, r->id + i);
}

/* Two tensors whose tiles come together, the second one `apart` f32 elements after the first. */
typedef struct pair {
  ring in;
  int64_t apart;
} pair;

AICORE pair pair_of(ub_arena *ub, int id, int64_t count, int64_t dtype, tile t) {
  const int64_t bytes = round_up(tile_bytes(dtype, t), UB_BLOCK);
  return (pair){ring_of(ub, id, count, 2 * bytes), bytes / 4};
}

/* The scalar pipe takes what vectors made, and the other way round. */
AICORE void scalar_waits(void) {
  sync_set(PIPE_V, PIPE_S, 0);
  sync_wait(PIPE_V, PIPE_S, 0);
}
AICORE void vector_waits(void) {
  sync_set(PIPE_S, PIPE_V, 0);
  sync_wait(PIPE_S, PIPE_V, 0);
}

/* ---- casts; each function from here on leaves the vector pipe in order ---- */

AICORE void widen(int64_t dtype, ub_f32 d, ub_f32 raw, int64_t n) {
  if (dtype == TIGON_BF16)
    v_f32_from_bf16(d, ub_as_bf16(raw), n);
  else
    v_f32_from_f16(d, ub_as_f16(raw), n);
  sync_pipe(PIPE_V);
}
AICORE void narrow(int64_t dtype, ub_f32 raw, ub_f32 s, int64_t n) {
  if (dtype == TIGON_BF16)
    v_bf16_from_f32(ub_as_bf16(raw), s, n);
  else
    v_f16_from_f32(ub_as_f16(raw), s, n);
  sync_pipe(PIPE_V);
}
/* d = s as the dtype would hold it; `raw` has room for that. */
AICORE void round_to(int64_t dtype, ub_f32 d, ub_f32 s, ub_f32 raw, int64_t n) {
  narrow(dtype, raw, s, n);
  widen(dtype, d, raw, n);
}

/* ---- a tile with a value a row, or with a vector of columns ---- */

typedef enum row_op { ROW_ADD, ROW_SUB, ROW_MUL, ROW_DIV } row_op;

AICORE void row_steps(row_op op, ub_f32 d, ub_f32 a, ub_f32 b, v_steps s) {
  if (op == ROW_ADD)
    v_add_r_f32(d, a, b, s);
  else if (op == ROW_SUB)
    v_sub_r_f32(d, a, b, s);
  else if (op == ROW_MUL)
    v_mul_r_f32(d, a, b, s);
  else
    v_div_r_f32(d, a, b, s);
}

AICORE int lanes_at(int64_t pitch, int64_t c) { return (int)least(V_LANES, pitch - c); }
/* May steps go down the rows, and are they fewer so? */
AICORE bool down_the_rows(tile t) { return t.pitch / 8 <= 255 && t.pitch / V_LANES < t.rows; }

/* The first `cols` columns of one row: d = x op b, where b holds 8 copies of a value (by_row), or a vector of columns. */
AICORE void row_op_of(row_op op, ub_f32 d, ub_f32 x, ub_f32 b, int64_t cols, bool by_row) {
  for (int64_t c = 0, steps; c < cols; c += steps * V_LANES) {
    const int64_t full = (cols - c) / V_LANES;
    steps = full > 0 ? least(V_REPEATS, full) : 1;
    v_mask_f32(lanes_at(cols, c));
    const v_steps s = {(int)steps, 1, 1, !by_row, 8, 8, by_row ? 0 : 8};
    row_steps(op, ub_at_f32(d, c), ub_at_f32(x, c), ub_at_f32(b, by_row ? 0 : c), s);
  }
}

/* The same of a tile, with 8 copies of a value for each row, from spread(). */
AICORE void tile_op(row_op op, ub_f32 d, ub_f32 x, ub_f32 b, tile t, bool by_row) {
  const int blocks = (int)(t.pitch / 8);
  if (down_the_rows(t)) {
    for (int64_t c = 0; c < t.pitch; c += V_LANES) {
      v_mask_f32(lanes_at(t.pitch, c));
      for (int64_t r = 0; r < t.rows; r += V_REPEATS) {
        const v_steps s = {(int)least(V_REPEATS, t.rows - r), 1, 1, !by_row, blocks, blocks, by_row};
        const int64_t at = r * t.pitch + c;
        row_steps(op, ub_at_f32(d, at), ub_at_f32(x, at), ub_at_f32(b, by_row ? 8 * r : c), s);
      }
    }
  } else {
    for (int64_t r = 0; r < t.rows; ++r)
      row_op_of(op, ub_at_f32(d, r * t.pitch), ub_at_f32(x, r * t.pitch), ub_at_f32(b, by_row ? 8 * r : 0), t.pitch,
                by_row);
  }
  sync_pipe(PIPE_V);
}

/* blocks[8 * r ..] = 8 times values[r]; both have room for rows rounded up to 8. */
AICORE void spread(ub_f32 blocks, ub_f32 values, int64_t rows) {
  const int64_t eights = (rows + 7) / 8;
  for (int64_t i = 0; i < eights; i += V_REPEATS)
    v_spread_f32(ub_at_f32(blocks, 64 * i), ub_at_f32(values, 8 * i), (int)least(V_REPEATS, eights - i));
  sync_pipe(PIPE_V);
}
/* The same of a tile with the value of each of its rows; `work` has room for a block a row. */
AICORE void by_rows(row_op op, ub_f32 d, ub_f32 x, ub_f32 values, ub_f32 work, tile t) {
  spread(work, values, t.rows);
  tile_op(op, d, x, work, t, true);
}

/* Columns are folded onto the first 64 in a call for every 64 of them, or half onto half in a call a row: is the first fewer? */
AICORE bool folds_down_the_rows(tile t) {
  int64_t halvings = 0;
  for (int64_t left = t.cols; left > V_LANES; left = (left + 1) / 2) ++halvings;
  return t.pitch / 8 <= 255 && (t.cols - 1) / V_LANES <= t.rows * halvings;
}

enum {
  WORD_REPEATS = V_REPEATS / 8 * 8
}; /* the most repeats of a call that leaves one word each: the words of the next call begin on 32 bytes */

/* values[r] = the sum, or the largest, of row r of x, which is used up: columns are folded onto the first 64, and those in one
 * call. What lies between cols and pitch does not count. */
AICORE void row_folds(bool largest, ub_f32 values, ub_f32 x, tile t) {
  const int blocks = (int)(t.pitch / 8);
  int64_t left = t.cols;
  if (folds_down_the_rows(t)) {
    for (int64_t c = V_LANES; c < t.cols; c += V_LANES) {
      v_mask_f32(lanes_at(t.cols, c));
      for (int64_t r = 0; r < t.rows; r += V_REPEATS) {
        const v_steps s = {(int)least(V_REPEATS, t.rows - r), 1, 1, 1, blocks, blocks, blocks};
        const ub_f32 first = ub_at_f32(x, r * t.pitch);
        if (largest)
          v_max_r_f32(first, first, ub_at_f32(first, c), s);
        else
          v_add_r_f32(first, first, ub_at_f32(first, c), s);
      }
      sync_pipe(PIPE_V);
    }
    left = least(left, V_LANES);
  }
  while (left > V_LANES) {
    const int64_t half = round_up((left + 1) / 2, 8);
    for (int64_t r = 0; r < t.rows; ++r) {
      const ub_f32 row = ub_at_f32(x, r * t.pitch);
      if (largest)
        v_max_f32(row, row, ub_at_f32(row, half), left - half);
      else
        v_add_f32(row, row, ub_at_f32(row, half), left - half);
    }
    sync_pipe(PIPE_V);
    left = half;
  }
  v_mask_f32((int)left);
  for (int64_t r = 0; r < t.rows; r += WORD_REPEATS) {
    const int count = (int)least(WORD_REPEATS, t.rows - r);
    if (largest)
      v_maximum_r_f32(ub_at_f32(values, r), ub_at_f32(x, r * t.pitch), count, 1, blocks);
    else
      v_sum_r_f32(ub_at_f32(values, r), ub_at_f32(x, r * t.pitch), count, 1, blocks);
  }
  sync_pipe(PIPE_V);
}
AICORE void row_sums(ub_f32 sums, ub_f32 x, tile t) { row_folds(false, sums, x, t); }
AICORE void row_maxima(ub_f32 maxima, ub_f32 x, tile t) { row_folds(true, maxima, x, t); }

/* The same, and x stays: its halves are added up in `work`, half as large. */
AICORE void row_sums_kept(ub_f32 sums, ub_f32 work, ub_f32 x, tile t) {
  const int64_t half = t.cols / 16 * 8, rest = t.cols - 2 * half;
  if (t.cols <= V_LANES) {
    row_sums(sums, x, t); /* with 64 columns at most x is not overwritten */
    return;
  }
  if (t.pitch / 8 <= 255 && half / V_LANES < t.rows) {
    for (int64_t r = 0; r < t.rows; r += V_REPEATS) {
      const int blocks = (int)(t.pitch / 8), folded = (int)(half / 8);
      const v_steps s = {(int)least(V_REPEATS, t.rows - r), 1, 1, 1, folded, blocks, blocks};
      const v_steps more = {s.repeat, 1, 1, 1, folded, folded, blocks};
      const ub_f32 to = ub_at_f32(work, r * half), from = ub_at_f32(x, r * t.pitch);
      for (int64_t c = 0; c < half; c += V_LANES) {
        v_mask_f32(lanes_at(half, c));
        v_add_r_f32(ub_at_f32(to, c), ub_at_f32(from, c), ub_at_f32(from, half + c), s);
      }
      sync_pipe(PIPE_V);
      if (rest == 0) continue;
      v_mask_f32((int)rest);
      v_add_r_f32(to, to, ub_at_f32(from, 2 * half), more);
    }
  } else {
    for (int64_t r = 0; r < t.rows; ++r) {
      const ub_f32 to = ub_at_f32(work, r * half), from = ub_at_f32(x, r * t.pitch);
      v_add_f32(to, from, ub_at_f32(from, half), half);
      sync_pipe(PIPE_V);
      if (rest > 0) v_add_f32(to, to, ub_at_f32(from, 2 * half), rest);
    }
  }
  sync_pipe(PIPE_V);
  row_sums(sums, work, (tile){t.rows, half, half});
}

/* The largest, and x stays: `work` gets what the first step leaves. A NaN passes. */
AICORE void row_maxima_kept(ub_f32 maxima, ub_f32 work, ub_f32 x, tile t) {
  tile folded = t;
  if (t.cols > V_LANES && down_the_rows(t)) {
    v_mul_scalar_f32(work, x, 1, t.rows * t.pitch);
  } else if (t.cols > V_LANES) {
    const int64_t half = t.cols / 16 * 8; /* what lies in the middle is met twice */
    folded.cols = t.cols - half;
    for (int64_t r = 0; r < t.rows; ++r) {
      const ub_f32 row = ub_at_f32(x, r * t.pitch);
      v_max_f32(ub_at_f32(work, r * t.pitch), row, ub_at_f32(row, half), folded.cols);
    }
  }
  sync_pipe(PIPE_V);
  row_maxima(maxima, t.cols > V_LANES ? work : x, folded);
}

/* The first row of x = the sum of its rows, in pairs, then pairs of pairs. x is used up. */
AICORE void fold_rows(ub_f32 x, tile t) {
  for (int64_t rows = t.rows, half; rows > 1; rows = half) {
    half = (rows + 1) / 2;
    v_add_f32(x, x, ub_at_f32(x, half * t.pitch), (rows - half) * t.pitch);
    sync_pipe(PIPE_V);
  }
}
/* sum[c] += column c of x over its rows. x is used up. */
AICORE void add_column_sums(ub_f32 sum, ub_f32 x, tile t) {
  fold_rows(x, t);
  v_add_f32(sum, sum, x, t.pitch);
  sync_pipe(PIPE_V);
}

/* The same, and x stays: its halves are added up in `work`. */
AICORE void add_column_sums_kept(ub_f32 sum, ub_f32 work, ub_f32 x, tile t) {
  const int64_t half = t.rows / 2;
  if (t.rows % 2) v_add_f32(sum, sum, ub_at_f32(x, 2 * half * t.pitch), t.pitch);
  if (half > 0) v_add_f32(work, x, ub_at_f32(x, half * t.pitch), half * t.pitch);
  sync_pipe(PIPE_V);
  if (half > 0) add_column_sums(sum, work, (tile){half, t.cols, t.pitch});
}

/* The f32 values of a tile: the tile itself, or its widened copy in `work`. */
AICORE ub_f32 values_of(int64_t dtype, ub_f32 work, ub_f32 raw, tile t) {
  if (dtype == TIGON_F32) return raw;
  widen(dtype, work, raw, t.rows * t.pitch);
  return work;
}

/* The last columns of x, from t.cols to its pitch, become -inf; `work` has room for a row of t's blocks. */
AICORE void hide_filling(ub_f32 x, ub_f32 work, tile t) {
  const int64_t last = t.cols / 8 * 8, lanes = t.pitch - last;
  if (t.cols == t.pitch) return;
  v_duplicate_f32(work, -__builtin_inff(), lanes);
  sync_pipe(PIPE_V);
  if (t.cols > last) v_duplicate_f32(work, 0, t.cols - last);
  sync_pipe(PIPE_V);
  v_mask_f32((int)lanes);
  const int64_t blocks = t.pitch / 8, most = blocks <= V_REPEATS ? V_REPEATS : 1;
  for (int64_t r = 0; r < t.rows; r += most) {
    const ub_f32 at = ub_at_f32(x, r * t.pitch + last);
    const int step = most > 1 ? (int)blocks : 0;
    const v_steps steps = {(int)least(most, t.rows - r), 1, 1, 1, step, step, 0};
    v_add_r_f32(at, at, work, steps);
  }
  sync_pipe(PIPE_V);
}

/* sum = a row's partial sums, one of each split, added in one fixed tree. */
AICORE void join_splits(ub_f32 sum, ring *arrival, gm_ptr partials, int64_t splits) {
  in_begin(arrival);
  load_f32(arrival->start, partials, 1, splits);
  in_ready(arrival);
  row_sums(sum, arrival->start, tile_of(TIGON_F32, 1, splits));
  in_done(arrival);
}

#endif
