/* rms_norm forward: rstd = 1 / sqrt(mean(x^2) + eps), y = x * rstd * (w + w_offset), times silu(z) with a gate.
 * fused_add_rms_norm stores x + residual, which replaces x. In modulated_rms_norm the weights are (1 + scale) * (w + w_offset), shift
 * is added, and each range of rows has its own scale and shift. One loop covers all of the plan's cases. A tile's rows are on chip at
 * once (B to D), or come in chunks of columns, once for the sum and once for y (E, F). With bytes q in place of y its largest |y|
 * comes first, and rows are not split. */
#include "ascend/kernel/gate.h"
#include "ascend/kernel/norm.h"
#include "ascend/kernel/quantise.h"
#include "ascend/kernel/rms_norm.h"

typedef struct state {
  const rms_norm_fwd_arguments *a;
  bool fused, quantised;
  ring x, y, rstd, arrival; /* y: or q; rstd: or q's scale */
  ring sum;                 /* fused: x + residual, on its way out and for the work */
  int64_t residual;         /* fused: f32 elements from x to the residual in a buffer */
  columns w, scale, shift;  /* with a scale, its values are all that y is multiplied by */
  bool resident;            /* they are on chip for all columns, those of one group at a time */
  int64_t group;            /* whose; -1: none yet */
  ub_f32 sums, part;        /* a value a row: of all chunks, and of one where there are several */
  ub_f32 work, more;        /* f32 tiles; `more` with 16-bit dtypes or q alone */
  ub_f32 code, root;        /* q's: a tile, which a gate has before it, and rstd */
  ring z;                   /* with a gate alone, as these tiles: silu's far factor, and z with 16-bit dtypes */
  ub_f32 far, gate;
} state;

/* What y is multiplied by and what is added to it, for columns [c, c + cols) of a group's rows. */
AICORE void load_vectors(state *s, int64_t group, int64_t c, int64_t cols) {
  const rms_norm_fwd_arguments *a = s->a;
  const int64_t pitch = tile_of(a->dtype, 1, cols).pitch;
  if (a->weight) columns_load(&s->w, c, cols, pitch);
  if (!a->scale.data) return;
  s->scale.from = row_at(&a->groups_space, &a->scale, dtype_bytes(a->scale_dtype), group, 0);
  columns_load(&s->scale, c, cols, pitch);
  if (a->weight) mul(s->scale.values, s->scale.values, s->w.values, pitch);
  if (!a->shift.data) return;
  s->shift.from = row_at(&a->groups_space, &a->shift, dtype_bytes(a->shift_dtype), group, 0);
  columns_load(&s->shift, c, cols, pitch);
}

AICORE state open_state(ub_arena *ub, const rms_norm_fwd_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const int64_t words = round_up(a->w.tile_rows, 8);
  const int64_t cached = a->w.cached ? a->w.buffers : 2, bytes = round_up(tile_bytes(a->dtype, chunk), UB_BLOCK);
  const bool resident = a->w.tile_cols == a->w.cols;
  state s = {.a = a, .fused = a->residual.data != NULL, .residual = bytes / 4, .resident = resident, .group = -1};
  s.quantised = a->q.data != NULL;
  const tile bytes_tile = tile_of(a->q_dtype, chunk.rows, chunk.cols); /* the widest rows */
  const int64_t room = s.quantised ? tile_bytes(a->q_dtype, bytes_tile) : chunk.rows * chunk.pitch;
  if (s.fused) {
    s.x = ring_of(ub, 0, 2, 2 * bytes);
    s.sum = ring_of(ub, 4, cached, tile_bytes(a->dtype, kept));
  } else {
    s.x = ring_of(ub, 0, cached, tile_bytes(a->dtype, kept));
  }
  s.y = ring_of(ub, 0, 2, s.quantised ? room : tile_bytes(a->dtype, chunk));
  s.rstd = ring_of(ub, 2, 2, words * 4);
  s.sums = ub_alloc_f32(ub, words);
  s.part = ub_alloc_f32(ub, chunk.cols < a->w.cols ? words : 0);
  s.work = ub_alloc_f32(ub, work_elements(s.quantised ? bytes_tile : chunk));
  s.more = a->dtype == TIGON_F32 && !s.quantised ? s.work : ub_alloc_f32(ub, room);
  const bool gated = a->z.data;
  s.z = ring_of(ub, 6, gated ? s.quantised ? cached : 2 : 0, tile_bytes(a->dtype, s.quantised ? kept : chunk));
  s.far = ub_alloc_f32(ub, gated ? room : 0);
  s.gate = ub_alloc_f32(ub, gated && a->dtype != TIGON_F32 ? room : 0);
  s.code = s.quantised && !gated ? ub_alloc_f32(ub, room) : s.far;
  s.root = ub_alloc_f32(ub, s.quantised ? words : 0);
  s.arrival = ring_of(ub, 3, 1, a->parts & PART_SUMS ? 0 : a->w.splits * 4);
  s.w = columns_of(ub, 2, a->weight, a->w_dtype, a->w_offset, chunk.pitch, s.work, resident);
  const int64_t pitch = a->scale.data ? chunk.pitch : 0;
  s.scale = columns_of(ub, resident ? 2 : 4, a->scale.data, a->scale_dtype, 1, pitch, s.work, resident); /* one stage */
  s.shift = columns_of(ub, resident ? 2 : 5, a->shift.data, a->shift_dtype, 0, pitch, s.work, resident);
  v_duplicate_f32(s.sums, 0, words);
  in_open(&s.x);
  in_open(&s.z);
  in_open(&s.w.stage);
  if (!resident) in_open(&s.scale.stage);
  if (!resident) in_open(&s.shift.stage);
  in_open(&s.arrival);
  out_open(&s.y);
  out_open(&s.rstd);
  out_open(&s.sum);
  sync_pipe(PIPE_V);
  if (!resident || a->scale.data) return s;
  load_vectors(&s, 0, 0, a->w.cols);
  s.group = 0;
  return s;
}

AICORE void close_state(const state *s) {
  in_close(&s->x);
  in_close(&s->z);
  in_close(&s->w.stage);
  if (!s->resident) in_close(&s->scale.stage);
  if (!s->resident) in_close(&s->shift.stage);
  in_close(&s->arrival);
  out_close(&s->y);
  out_close(&s->rstd);
  out_close(&s->sum);
}

/* Columns [c, c + t.cols) of rows from r on, in their dtype: from what is cached, or loaded. chunk_done() ends it. */
AICORE ub_f32 chunk_of(state *s, tile t, int64_t r, int64_t c) {
  const rms_norm_fwd_arguments *a = s->a;
  if (a->w.cached) return ub_at_f32(ring_now(s->fused ? &s->sum : &s->x), c * dtype_bytes(a->dtype) / 4);
  in_begin(&s->x);
  load_tile(a->dtype, ring_now(&s->x), &a->space, s->fused ? &a->sum : &a->x, t, r, c);
  in_ready(&s->x);
  return ring_now(&s->x);
}
AICORE void chunk_done(state *s) {
  if (!s->a->w.cached) in_done(&s->x);
}

/* x + residual of a chunk as the dtype holds it: stored, and left for the work until two chunks, or a tile, later. */
AICORE ub_f32 add_residual(state *s, box b, tile t, int64_t r, int64_t c) {
  const rms_norm_fwd_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch;
  const ub_f32 x = ring_now(&s->x), residual = ub_at_f32(x, s->residual);
  const ub_f32 sum = ub_at_f32(ring_now(&s->sum), a->w.cached ? c * dtype_bytes(a->dtype) / 4 : 0);
  in_begin(&s->x);
  load_tile(a->dtype, x, &a->space, &a->x, t, r, c);
  load_tile(a->dtype, residual, &a->space, &a->residual, t, r, c);
  in_ready(&s->x);
  if (!a->w.cached) out_begin(&s->sum);
  if (a->dtype == TIGON_F32) {
    v_add_f32(sum, x, residual, n);
  } else {
    widen(a->dtype, s->work, x, n);
    widen(a->dtype, s->more, residual, n);
    v_add_f32(s->more, s->work, s->more, n);
    sync_pipe(PIPE_V);
    narrow(a->dtype, sum, s->more, n);
  }
  sync_pipe(PIPE_V);
  in_done(&s->x);
  /* Chunks of a cached row have one buffer and one flag: V sets it again when MTE3 has said that it took the one before. */
  const int flag = s->sum.id + s->sum.at;
  if (a->w.cached && c > b.col) sync_wait(PIPE_MTE3, PIPE_V, flag);
  out_ready(&s->sum);
  if (a->w.cached && c + t.cols < b.col_end) sync_set(PIPE_MTE3, PIPE_V, flag);
  store_tile(a->dtype, &a->space, &a->sum, sum, t, r, c);
  if (!a->w.cached) out_done(&s->sum);
  return sum;
}

/* sums = the rows' sums of squares over columns [col, col_end). */
AICORE void sum_squares(state *s, box b, int64_t r, int64_t rows) {
  const int64_t dtype = s->a->dtype, wide = s->a->w.tile_cols;
  for (int64_t c = b.col; c < b.col_end; c += wide) {
    const tile t = tile_of(dtype, rows, least(wide, b.col_end - c));
    const ub_f32 raw = s->fused ? add_residual(s, b, t, r, c) : chunk_of(s, t, r, c);
    const ub_f32 x = values_of(dtype, s->more, raw, t);
    v_mul_f32(s->work, x, x, t.rows * t.pitch);
    sync_pipe(PIPE_V);
    if (!s->fused) chunk_done(s);
    row_sums(c == b.col ? s->sums : s->part, s->work, t);
    if (c == b.col) continue;
    v_add_f32(s->sums, s->sums, s->part, rows);
    sync_pipe(PIPE_V);
  }
}

/* rstd = 1 / sqrt(sums / cols + eps), and stores it where q's scale does not take its place. */
AICORE ub_f32 find_rstd(state *s, box b, int64_t r, int64_t rows) {
  const rms_norm_fwd_arguments *a = s->a;
  const bool rounds = a->casting == TIGON_CASTING_NONE && a->dtype != TIGON_F32;
  const ub_f32 rstd = s->quantised ? s->root : ring_now(&s->rstd);
  const int64_t words = round_up(rows, 8);
  out_begin(&s->rstd);
  divide_sums(s->sums, rstd, a->w.cols, words);
  if (rounds) round_to(a->dtype, s->sums, s->sums, s->work, words);
  inverse_root(rstd, s->sums, a->eps, words);
  if (rounds) round_to(a->dtype, rstd, rstd, s->work, words);
  if (s->quantised) return rstd;
  out_ready(&s->rstd);
  if (a->rstd && b.col == 0) store_f32(a->rstd + r * 4, rstd, 1, rows);
  return rstd;
}

/* Does z stay on chip? Where it is read once, it comes by in chunks. */
AICORE bool keeps_z(const state *s) { return s->quantised && s->a->w.cached; }
AICORE void load_z(state *s, tile t, int64_t r, int64_t c) {
  in_begin(&s->z);
  load_tile(s->a->dtype, ring_now(&s->z), &s->a->space, &s->a->z, t, r, c);
  in_ready(&s->z);
}

/* y *= silu(z). */
AICORE void multiply_gate(state *s, ub_f32 y, tile t, int64_t r, int64_t c) {
  const rms_norm_fwd_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch, first = keeps_z(s) ? c * dtype_bytes(a->dtype) / 4 : 0;
  if (!keeps_z(s)) load_z(s, t, r, c);
  gate_tiles k = {.u = values_of(a->dtype, s->gate, ub_at_f32(ring_now(&s->z), first), t), .f = s->far, .n = n};
  k.x = k.y = s->work;
  logistic(&k, SILU, a->dtype == TIGON_F32, false);
  if (!keeps_z(s)) in_done(&s->z);
  mul(y, y, k.x, n);
}

/* y of a chunk in f32, made in the tile `to`; `raw` has room for one of x's dtype. there: `more` has x, which the sum left behind. */
AICORE void values_of_chunk(state *s, ub_f32 to, ub_f32 raw, ub_f32 rstd, tile t, int64_t r, int64_t c, bool there) {
  const rms_norm_fwd_arguments *a = s->a;
  const int64_t dtype = a->dtype;
  const ub_f32 in = chunk_of(s, t, r, c);
  if (!s->resident) load_vectors(s, r / a->groups.batch, c, t.cols);
  const ub_f32 x = there && dtype != TIGON_F32 ? s->more : values_of(dtype, s->more, in, t);
  spread(s->work, rstd, t.rows);
  tile_op(ROW_MUL, to, x, s->work, t, true);
  chunk_done(s);
  if (a->casting != TIGON_CASTING_GEMMA && dtype != TIGON_F32) round_to(dtype, to, to, raw, t.rows * t.pitch);
  if (a->weight || a->scale.data) tile_op(ROW_MUL, to, to, a->scale.data ? s->scale.values : s->w.values, t, false);
  if (a->shift.data) tile_op(ROW_ADD, to, to, s->shift.values, t, false);
  if (a->z.data) multiply_gate(s, to, t, r, c);
}

AICORE void normalise(state *s, box b, ub_f32 rstd, int64_t r, int64_t rows) {
  const rms_norm_fwd_arguments *a = s->a;
  const int64_t dtype = a->dtype, wide = a->w.tile_cols, group = r / a->groups.batch;
  if (s->resident && group != s->group && (a->weight || a->scale.data)) {
    stage_again(&s->w.stage);
    load_vectors(s, group, 0, a->w.cols);
  }
  s->group = group;
  for (int64_t c = b.col; c < b.col_end; c += wide) {
    const tile t = tile_of(dtype, rows, least(wide, b.col_end - c));
    const ub_f32 y = ring_now(&s->y);
    out_begin(&s->y);
    values_of_chunk(s, dtype == TIGON_F32 ? y : s->more, y, rstd, t, r, c, wide == a->w.cols && a->parts & PART_SUMS);
    if (dtype != TIGON_F32) narrow(dtype, y, s->more, t.rows * t.pitch);
    out_ready(&s->y);
    store_tile(dtype, &a->space, &a->y, y, t, r, c);
    out_done(&s->y);
  }
}

/* From the largest |y| of each row its scale, which is 1 where that is less than 2^-126. */
AICORE void find_scale(const state *s, ub_f32 scale, int64_t rows) {
  const ub_f32 normal = s->work, mask = s->code;
  duplicate(normal, s->a->q_dtype == TIGON_I8 ? 127 : 448, rows);
  divide(scale, scale, normal, rows);
  mul_scalar(normal, scale, 0x1p126f, rows);
  add_scalar(normal, normal, -(1 - 0x1p-23f), rows);
  at_least(normal, normal, 0, rows);
  mul_scalar(normal, normal, 0x1p23f, rows);
  at_most(normal, normal, 1, rows); /* 1 or 0 */
  mul_scalar(mask, normal, -1, rows);
  v_i32_from_f32(mask, mask, rows);
  sync_pipe(PIPE_V);
  clear(scale, mask, rows);
  mul_scalar(normal, normal, -1, rows);
  add_scalar(normal, normal, 1, rows);
  add(scale, scale, normal, rows);
}

/* A tile's q and scale. y is made for its largest values, and again where it does not stay. */
AICORE void quantise(state *s, ub_f32 rstd, int64_t r, int64_t rows) {
  const rms_norm_fwd_arguments *a = s->a;
  const int64_t wide = a->w.tile_cols, cols = a->w.cols;
  const bool stays = a->w.cached && wide == cols;
  const ub_f32 scale = ring_now(&s->rstd), y = s->more;
  duplicate(scale, 0, round_up(rows, 8));
  for (int64_t c = 0; c < cols; c += wide) {
    const tile t = tile_of(a->dtype, rows, least(wide, cols - c));
    values_of_chunk(s, y, s->code, rstd, t, r, c, wide == cols);
    absolute(s->work, y, rows * t.pitch);
    row_maxima(s->sums, s->work, t);
    v_max_f32(scale, scale, s->sums, rows);
    sync_pipe(PIPE_V);
  }
  find_scale(s, scale, rows);
  out_ready(&s->rstd);
  store_f32(a->q_scale + r * 4, scale, 1, rows);
  for (int64_t c = 0; c < cols; c += wide) {
    const tile t = tile_of(a->dtype, rows, least(wide, cols - c));
    const int64_t n = rows * t.pitch;
    if (!stays) values_of_chunk(s, y, s->code, rstd, t, r, c, false);
    by_rows(ROW_DIV, y, y, scale, s->work, t);
    if (a->q_dtype == TIGON_I8)
      i8_codes(s->code, y, n);
    else
      f8e4m3_codes(s->code, y, s->work, n);
    out_begin(&s->y);
    bytes_of(ring_now(&s->y), s->code, s->work, t);
    out_ready(&s->y);
    store_tile(a->q_dtype, &a->space, &a->q, ring_now(&s->y), tile_of(a->q_dtype, rows, t.cols), r, c);
    out_done(&s->y);
  }
}

AICORE void rows_of_tile(state *s, box b, int64_t r, int64_t rows) {
  const rms_norm_fwd_arguments *a = s->a;
  if (a->w.cached && s->fused) {
    out_begin(&s->sum);
  } else if (a->w.cached) {
    in_begin(&s->x);
    load_tile(a->dtype, ring_now(&s->x), &a->space, &a->x, tile_of(a->dtype, rows, a->w.cols), r, 0);
    in_ready(&s->x);
  }
  if (a->z.data && keeps_z(s)) load_z(s, tile_of(a->dtype, rows, a->w.cols), r, 0);
  if (a->parts & PART_SUMS)
    sum_squares(s, b, r, rows);
  else
    join_splits(s->sums, &s->arrival, a->partials + r * a->w.splits * 4, a->w.splits);
  if (s->fused && !a->w.cached && a->parts == (PART_SUMS | PART_ROWS)) { /* the sum is stored before it is read back */
    sync_set(PIPE_MTE3, PIPE_MTE2, 0);
    sync_wait(PIPE_MTE3, PIPE_MTE2, 0);
  }
  if (s->quantised) {
    quantise(s, find_rstd(s, b, r, rows), r, rows);
  } else if (a->parts & PART_ROWS) {
    normalise(s, b, find_rstd(s, b, r, rows), r, rows);
  } else {
    out_begin(&s->rstd);
    v_mul_scalar_f32(ring_now(&s->rstd), s->sums, 1, 8);
    out_ready(&s->rstd);
    store_f32(a->partials + (r * a->w.splits + b.split) * 4, ring_now(&s->rstd), 1, 1);
  }
  out_done(&s->rstd);
  if (a->w.cached && s->fused) out_done(&s->sum);
  if (a->w.cached && !s->fused) in_done(&s->x);
  if (a->z.data && keeps_z(s)) in_done(&s->z);
}

AICORE_KERNEL(rms_norm_fwd, rms_norm_fwd_arguments) {
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    for (int64_t r = b.row, rows; r < b.row_end; r += rows) {
      rows = rows_of(&a->groups, a->w.tile_rows, r, b.row_end);
      rows_of_tile(&s, b, r, rows);
    }
  }
  close_state(&s);
}
