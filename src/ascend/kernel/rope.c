/* rope: x * c + swapped(x) * s, where c and s have a column for each of a head's rotary_dim elements, s with its sign, and swapped
 * has the other half of each pair. A tile is some heads of some tokens, all in one buffer from load to store, so that what is not
 * turned passes as it is. Rows are in the order in which they lie in memory: a token's heads, or a head's tokens. */
#include "ascend/kernel/rope.h"

#include "ascend/kernel/ordered.h"

typedef struct state {
  const rope_arguments *a;
  int64_t pairs, pitch, turned;    /* elements: of a head, of rotary_dim columns */
  int64_t table_cols, table_pitch; /* elements of a table's row, in its dtype; a token has a row for each axis */
  bool gathers;
  ring x, tables; /* tables: cos, then sin, `apart` f32 elements after it */
  int64_t apart;
  ub_f32 wide, swapped;   /* f32 tiles; `wide` with 16-bit dtypes alone */
  ub_f32 widened;         /* a token's tables in f32, with 16-bit tables alone */
  ub_f32 cosine, sine;    /* [tokens, turned] */
  ub_f32 columns[2];      /* [turned] byte offsets of a column's cos and sin in the tables */
  ub_f32 partners, signs; /* [turned] byte offsets of a column's partner; -1 or 1 */
  ub_f32 ids, found;
  int64_t at[ROPE_TOKENS][TIGON_ROPE_AXES]; /* elements of the tables before the token's rows */
  bool out[ROPE_TOKENS];                    /* a position is out of range */
  bool any_out;
} state;

/* ---- constants: written by the scalar pipe once ---- */

AICORE void write_columns(const state *s) {
  const bool interleaved = s->a->interleaved;
  for (int64_t i = 0; i < 2 * s->pairs; ++i) {
    const bool second = interleaved ? i % 2 == 1 : i >= s->pairs;
    const int64_t pair = interleaved ? i / 2 : i % s->pairs;
    const int64_t partner = interleaved ? i + 1 - 2 * (i % 2) : second ? i - s->pairs : i + s->pairs;
    const int64_t axis = tigon_rope_axis(s->a->pairs_of, (int)s->a->axes, pair);
    const int64_t at = axis * s->table_pitch + (s->a->sine ? pair : 2 * pair);
    s_write_i32(s->columns[0], i, (int32_t)(4 * at));
    s_write_i32(s->columns[1], i, (int32_t)(4 * (s->a->sine ? at : at + 1)));
    if (s->gathers) s_write_i32(s->partners, i, (int32_t)(4 * partner));
    s_write_f32(s->signs, i, second ? s->a->sign : -s->a->sign);
  }
  sync_set(PIPE_S, PIPE_V, 0);
  sync_wait(PIPE_S, PIPE_V, 0);
}

AICORE state open_state(ub_arena *ub, const rope_arguments *a) {
  const int64_t rows = a->tile_tokens * a->tile_heads;
  state s = {.a = a, .pairs = a->rotary_dim / 2, .turned = round_up(a->rotary_dim, 8)};
  s.pitch = tile_of(a->dtype, 1, a->head_dim).pitch;
  const int64_t tables = 2 * a->axes * tile_of(a->table_dtype, 1, s.pairs).pitch; /* complex numbers take no more */
  s.table_cols = a->sine ? s.pairs : 2 * s.pairs;
  s.table_pitch = tile_of(a->table_dtype, 1, s.table_cols).pitch;
  s.gathers = rope_gathers(a->interleaved, a->rotary_dim);
  s.apart = a->sine ? a->tile_tokens * tables / 2 * dtype_bytes(a->table_dtype) / 4 : 0;
  s.x = ring_of(ub, 0, ROPE_BUFFERS, rows * s.pitch * dtype_bytes(a->dtype));
  s.tables = ring_of(ub, 4, 2, a->tile_tokens * tables * dtype_bytes(a->table_dtype));
  s.wide = ub_alloc_f32(ub, a->dtype == TIGON_F32 ? 0 : rows * s.pitch);
  s.swapped = ub_alloc_f32(ub, rows * s.pitch);
  s.widened = ub_alloc_f32(ub, a->table_dtype == TIGON_F32 ? 0 : tables);
  s.cosine = ub_alloc_f32(ub, a->tile_tokens * s.turned);
  s.sine = ub_alloc_f32(ub, a->tile_tokens * s.turned);
  for (int i = 0; i < 2; ++i) s.columns[i] = ub_alloc_f32(ub, s.turned);
  s.partners = ub_alloc_f32(ub, s.turned);
  s.signs = ub_alloc_f32(ub, s.turned);
  s.ids = ub_alloc_f32(ub, 2 * ROPE_TOKENS);
  s.found = ub_alloc_f32(ub, 8);
  write_columns(&s);
  for (int i = 0; i < s.x.count; ++i) sync_set(PIPE_MTE3, PIPE_MTE2, s.x.id + i);
  in_open(&s.tables);
  sync_set(PIPE_S, PIPE_MTE2, 0);
  return s;
}

AICORE void close_state(state *s) {
  for (int i = 0; i < s->x.count; ++i) sync_wait(PIPE_MTE3, PIPE_MTE2, s->x.id + i);
  in_close(&s->tables);
  sync_wait(PIPE_S, PIPE_MTE2, 0);
  if (!s->a->flags) return;
  s_write_i32(s->found, 0, s->any_out);
  sync_set(PIPE_S, PIPE_MTE3, 0);
  sync_wait(PIPE_S, PIPE_MTE3, 0);
  store_f32(s->a->flags + block_index() * 4, s->found, 1, 1);
}

/* ---- tables ---- */

/* The id at `index` of those that were loaded. */
AICORE int64_t read_id(const state *s, int64_t index) {
  const int64_t words = s->a->position_words, low = s_read_i32(s->ids, index * words);
  return words == 1 ? low : (int64_t)s_read_i32(s->ids, 2 * index + 1) * ((int64_t)1 << 32) + (uint32_t)low;
}

/* One axis's rows of tokens [t0, t0 + count) of sequence b. */
AICORE void find_axis(state *s, int64_t axis, int64_t b, int64_t t0, int64_t count) {
  const rope_arguments *a = s->a;
  if (a->positions) {
    const int64_t first = axis * a->position_axis_pitch + b * a->position_pitch + t0;
    sync_wait(PIPE_S, PIPE_MTE2, 0);
    load_f32(s->ids, a->positions + first * a->position_words * 4, 1, count * a->position_words);
    sync_set(PIPE_MTE2, PIPE_S, 0);
    sync_wait(PIPE_MTE2, PIPE_S, 0);
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = a->positions ? read_id(s, i) : t0 + i;
    s->out[i] = s->out[i] || row < 0 || row >= a->table_rows;
    s->at[i][axis] = axis * a->table_axis_pitch + b * a->table_batch_pitch + (s->out[i] ? 0 : row * a->table_pitch);
  }
  if (a->positions) sync_set(PIPE_S, PIPE_MTE2, 0);
}

AICORE void find_rows(state *s, int64_t b, int64_t t0, int64_t count) {
  for (int64_t i = 0; i < count; ++i) s->out[i] = false;
  for (int64_t axis = 0; axis < s->a->axes; ++axis) find_axis(s, axis, b, t0, count);
  for (int64_t i = 0; i < count; ++i) s->any_out = s->any_out || s->out[i];
}

AICORE void load_table(const state *s, ub_f32 to, gm_ptr from, int64_t count) {
  const rope_arguments *a = s->a;
  const int64_t size = dtype_bytes(a->table_dtype);
  const bool one = !a->positions && a->axes == 1 && a->table_pitch == s->table_cols;
  for (int64_t i = 0; i < count; i += one ? count : 1)
    for (int64_t axis = 0; axis < a->axes && !s->out[i]; ++axis)
      load(a->table_dtype, ub_at_f32(to, (i * a->axes + axis) * s->table_pitch * size / 4),
           from + s->at[i][axis] * size, one ? count : 1, s->table_cols);
}

/* d [count, turned] = each pair's value in both of its columns; NaN for a token that is out of range. */
AICORE void widen_table(const state *s, ub_f32 d, ub_f32 raw, ub_f32 columns, int64_t count) {
  const int64_t size = dtype_bytes(s->a->table_dtype), rows = s->a->axes * s->table_pitch;
  for (int64_t i = 0; i < count; ++i) {
    const ub_f32 row = ub_at_f32(d, i * s->turned), from = ub_at_f32(raw, i * rows * size / 4);
    if (s->out[i]) {
      v_duplicate_f32(row, __builtin_nanf(""), s->turned);
    } else {
      if (size == 2) widen(s->a->table_dtype, s->widened, from, rows);
      v_gather_f32(row, size == 2 ? s->widened : from, columns, s->a->rotary_dim);
    }
    sync_pipe(PIPE_V);
  }
}

AICORE void find_tables(state *s, int64_t b, int64_t t0, int64_t count) {
  find_rows(s, b, t0, count);
  in_begin(&s->tables);
  const ub_f32 cosine = ring_now(&s->tables), sine = ub_at_f32(cosine, s->apart);
  load_table(s, cosine, s->a->cosine, count);
  if (s->a->sine) load_table(s, sine, s->a->sine, count);
  in_ready(&s->tables);
  widen_table(s, s->cosine, cosine, s->columns[0], count);
  widen_table(s, s->sine, sine, s->columns[1], count);
  in_done(&s->tables);
  for (int64_t i = 0; i < count; ++i) {
    const ub_f32 row = ub_at_f32(s->sine, i * s->turned);
    v_mul_f32(row, row, s->signs, s->a->rotary_dim);
  }
  sync_pipe(PIPE_V);
}

/* ---- tiles ---- */

typedef struct heads_tile {
  int64_t b, t0, tokens, h0, heads;
  bool heads_inside; /* row i * heads + h, or h * tokens + i */
} heads_tile;

/* All rows of a tile from or to memory, as many at once as lie end to end. */
AICORE void move_rows(const state *s, const gm_heads *t, heads_tile w, bool in) {
  const int64_t size = dtype_bytes(s->a->dtype), rows = w.tokens * w.heads, dim = s->a->head_dim;
  const int64_t inner = w.heads_inside ? w.heads : w.tokens;
  const int64_t inside = w.heads_inside ? t->head_pitch : t->token_pitch;
  const int64_t outside = w.heads_inside ? t->token_pitch : t->head_pitch;
  const gm_ptr first = t->data + (w.b * t->batch_pitch + w.t0 * t->token_pitch + w.h0 * t->head_pitch) * size;
  const int64_t run = inside != dim && inner > 1 ? 1 : outside == inner * dim ? rows : inner;
  for (int64_t r = 0, count; r < rows; r += count) {
    count = least(run - r % run, MOST_BURSTS);
    const gm_ptr memory = first + (r / inner * outside + r % inner * inside) * size;
    const ub_f32 tile = ub_at_f32(ring_now(&s->x), r * s->pitch * size / 4);
    if (in)
      load(s->a->dtype, tile, memory, count, dim);
    else
      store(s->a->dtype, memory, tile, count, dim);
  }
}

/* d = x op b in the first `cols` columns of rows of d and x; rows of b are b_pitch apart, 0: one for all. The pipe is not in order
 * after it. */
AICORE void turn_columns(row_op op, ub_f32 d, ub_f32 x, ub_f32 b, int64_t rows, int64_t cols, int64_t pitch,
                         int64_t b_pitch) {
  const int step = (int)(pitch / 8), b_step = (int)(b_pitch / 8);
  if (step > V_REPEATS || b_step > V_REPEATS || cols / V_LANES >= rows) {
    for (int64_t r = 0; r < rows; ++r)
      row_op_of(op, ub_at_f32(d, r * pitch), ub_at_f32(x, r * pitch), ub_at_f32(b, r * b_pitch), cols, false);
    return;
  }
  for (int64_t c = 0; c < cols; c += V_LANES) {
    v_mask_f32(lanes_at(cols, c));
    for (int64_t r = 0; r < rows; r += V_REPEATS) {
      const v_steps steps = {(int)least(V_REPEATS, rows - r), 1, 1, 1, step, step, b_step};
      row_steps(op, ub_at_f32(d, r * pitch + c), ub_at_f32(x, r * pitch + c), ub_at_f32(b, r * b_pitch + c), steps);
    }
  }
}

/* x op a table, group by group: rows that share a token's row of it, or a head's rows, which have all of them. */
AICORE void by_table(const state *s, ub_f32 d, ub_f32 x, ub_f32 table, heads_tile w, int64_t cols) {
  const int64_t groups = w.heads_inside ? w.tokens : w.heads, rows = w.heads_inside ? w.heads : w.tokens;
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t at = g * rows * s->pitch;
    turn_columns(ROW_MUL, ub_at_f32(d, at), ub_at_f32(x, at), ub_at_f32(table, w.heads_inside ? g * s->turned : 0),
                 rows, cols, s->pitch, w.heads_inside ? 0 : s->turned);
  }
}

AICORE void turn(const state *s, ub_f32 x, heads_tile w) {
  const int64_t rows = w.tokens * w.heads, dim = s->a->rotary_dim;
  if (s->gathers) {
    for (int64_t r = 0; r < rows; ++r)
      v_gather_f32(ub_at_f32(s->swapped, r * s->pitch), ub_at_f32(x, r * s->pitch), s->partners, dim);
    sync_pipe(PIPE_V);
    by_table(s, s->swapped, s->swapped, s->sine, w, dim);
  } else {
    by_table(s, s->swapped, ub_at_f32(x, s->pairs), s->sine, w, s->pairs);
    by_table(s, ub_at_f32(s->swapped, s->pairs), x, ub_at_f32(s->sine, s->pairs), w, s->pairs);
  }
  sync_pipe(PIPE_V);
  by_table(s, x, x, s->cosine, w, dim);
  sync_pipe(PIPE_V);
  turn_columns(ROW_ADD, x, x, s->swapped, rows, dim, s->pitch, s->pitch);
  sync_pipe(PIPE_V);
}

/* What was turned goes back to its own dtype; a token that is out of range becomes NaN. */
AICORE void finish_rows(const state *s, ub_f32 x, heads_tile w) {
  const int64_t rows = w.tokens * w.heads, dim = s->a->head_dim, dtype = s->a->dtype;
  if (!s->any_out && s->a->rotary_dim == dim) {
    if (dtype != TIGON_F32) narrow(dtype, ring_now(&s->x), x, rows * s->pitch);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    const bool out = s->out[w.heads_inside ? r / w.heads : r % w.tokens];
    const ub_f32 row = ub_at_f32(x, r * s->pitch);
    if (out) duplicate(row, __builtin_nanf(""), dim);
    if (dtype == TIGON_F32) continue;
    narrow(dtype, ub_at_f32(ring_now(&s->x), r * s->pitch / 2), row, out ? dim : s->a->rotary_dim);
  }
}

AICORE void turn_tile(state *s, const gm_heads *in, const gm_heads *out, heads_tile w) {
  const int id = s->x.id + s->x.at;
  const ub_f32 raw = ring_now(&s->x);
  sync_wait(PIPE_MTE3, PIPE_MTE2, id);
  move_rows(s, in, w, true);
  in_ready(&s->x);
  const ub_f32 x = s->a->dtype == TIGON_F32 ? raw : s->wide;
  if (s->a->dtype != TIGON_F32) widen(s->a->dtype, x, raw, w.tokens * w.heads * s->pitch);
  turn(s, x, w);
  finish_rows(s, x, w);
  out_ready(&s->x);
  move_rows(s, out, w, false);
  sync_set(PIPE_MTE3, PIPE_MTE2, id);
  ring_turn(&s->x);
}

AICORE_KERNEL(rope, rope_arguments) {
  state s = open_state(ub, a);
  const int64_t blocks = (a->tokens + a->tile_tokens - 1) / a->tile_tokens;
  for (int64_t unit = block_index(); unit < a->batch * blocks; unit += block_count()) {
    heads_tile w = {.b = unit / blocks, .t0 = unit % blocks * a->tile_tokens};
    w.tokens = least(a->tile_tokens, a->tokens - w.t0);
    find_tables(&s, w.b, w.t0, w.tokens);
    for (int which = 0; which < 2; ++which) {
      const gm_heads *in = &a->in[which], *out = &a->out[which];
      w.heads_inside = in->head_pitch <= in->token_pitch;
      for (w.h0 = 0; w.h0 < in->heads; w.h0 += a->tile_heads) {
        w.heads = least(a->tile_heads, in->heads - w.h0);
        turn_tile(&s, in, out, w);
      }
    }
  }
  close_state(&s);
}

AICORE_KERNEL(rope_flag, rope_flag_arguments) {
  const ub_f32 flags = ub_alloc_f32(ub, a->count);
  bool any = false;
  load_f32(flags, a->flags, 1, a->count);
  sync_set(PIPE_MTE2, PIPE_S, 0);
  sync_wait(PIPE_MTE2, PIPE_S, 0);
  for (int64_t i = 0; i < a->count; ++i) any = any || s_read_i32(flags, i) != 0;
  if (!any) return;
  s_write_i32(flags, 0, 1);
  sync_set(PIPE_S, PIPE_MTE3, 0);
  sync_wait(PIPE_S, PIPE_MTE3, 0);
  store_f32(a->error, flags, 1, 1);
}
