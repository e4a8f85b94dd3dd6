/* attn_res: a program has every so many-th token. It goes over the token's tiles for the sums of its blocks, and again for h, or
 * for dv and its terms of u. Tiles that do not stay on chip are loaded twice. Arrays of blocks have a word each. */
#include "ascend/kernel/attn_res.h"

#include "ascend/kernel/norm.h"
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/scalar.h"

typedef struct state {
  const attn_res_arguments *a;
  bool backward;
  ring in, out;
  columns q, wn;
  ub_f32 vector, c;       /* q * wn: of all columns where they are resident; of the tile */
  ub_f32 wide, work, own; /* f32 tiles */
  ub_f32 spread;          /* a block a row */
  ub_f32 v_words, dv_words;
  /* f32 elements that a whole tile and its rows take as memory has them. */
  int64_t tile_elements, row_elements;
  /* The tile at work. */
  int64_t token, n;
  ub_f32 value, dh;
  tile t;
} state;

/* ---- addresses ---- */

AICORE ub_f32 open_table(ub_arena *ub, const blocks *b, int64_t count) {
  const ub_f32 words = ub_alloc_f32(ub, b->table ? 2 * count : 0);
  if (!b->table || count == 0) return words;
  load_f32(words, b->table, 1, 2 * count);
  scalar_after_loads();
  return words;
}
AICORE gm_rows block_rows(const state *s, const blocks *b, ub_f32 words, int64_t i) {
  gm_rows rows = b->rows;
  if (b->table)
    rows.data = (gm_ptr)s_read_index(TIGON_I64, words, i); /* NOLINT(performance-no-int-to-ptr) */
  else
    rows.data += i * b->step * dtype_bytes(s->a->dtype);
  return rows;
}

AICORE_KERNEL(attn_res_table, attn_res_table_arguments) {
  const ub_f32 words = ub_alloc_f32(ub, 2 * ATTN_RES_ADDRESSES);
  for (int64_t i = 0; i < a->count; ++i) {
    s_write_i32(words, 2 * i, (int32_t)(uint32_t)a->address[i]);
    s_write_i32(words, 2 * i + 1, (int32_t)(a->address[i] >> 32));
  }
  stores_after_scalar();
  store_f32(a->to, words, 1, 2 * a->count);
  sync_pipe(PIPE_ALL);
}

/* ---- tiles ---- */

AICORE tile whole_tile(const attn_res_arguments *a) { return tile_of(a->dtype, a->group, a->chunk); }

AICORE state open_state(ub_arena *ub, const attn_res_arguments *a, bool backward) {
  const tile t = whole_tile(a);
  const int64_t rows = t.rows + backward, size = dtype_bytes(a->dtype);
  const int64_t chunks = a->held && a->cols > 0 ? (a->cols - 1) / a->chunk + 1 : 1;
  state s = {.a = a, .backward = backward, .row_elements = t.pitch * size / 4};
  s.tile_elements = rows * s.row_elements;
  s.in = ring_of(ub, 0, a->buffers, chunks * rows * t.pitch * size);
  s.out = ring_of(ub, 0, 2, (backward ? t.rows : 1) * t.pitch * size);
  s.wide = ub_alloc_f32(ub, a->dtype == TIGON_F32 ? 0 : rows * t.pitch);
  s.work = ub_alloc_f32(ub, work_elements(t));
  s.own = ub_alloc_f32(ub, backward ? t.rows * t.pitch : t.pitch);
  s.spread = ub_alloc_f32(ub, round_up(t.rows, 8) * 8);
  s.vector = ub_alloc_f32(ub, a->resident ? round_up(a->cols, a->chunk) + t.pitch : t.pitch);
  const ub_f32 none = ub_alloc_f32(ub, 0);
  s.q = columns_of(ub, 2, a->q, a->q_dtype, 0, t.pitch, none, false);
  s.wn = columns_of(ub, 3, a->wn, a->wn_dtype, 0, t.pitch, none, false);
  s.v_words = open_table(ub, &a->v, a->count);
  s.dv_words = open_table(ub, &a->dv, backward ? a->count : 0);
  in_open(&s.in);
  in_open(&s.q.stage);
  in_open(&s.wn.stage);
  out_open(&s.out);
  return s;
}
AICORE void close_state(const state *s) {
  in_close(&s->in);
  in_close(&s->q.stage);
  in_close(&s->wn.stage);
  out_close(&s->out);
}

AICORE ub_f32 words_of(ub_arena *ub, const attn_res_arguments *a) {
  const int64_t n = round_up(a->count, 8) > round_up(a->group, 8) ? round_up(a->count, 8) : round_up(a->group, 8);
  const ub_f32 words = ub_alloc_f32(ub, n);
  duplicate(words, 0, n);
  return words;
}

/* c of the chunk from `col` on, which is loaded unless it is resident. */
AICORE void make_c(state *s, int64_t col) {
  const int64_t pitch = whole_tile(s->a).pitch, n = least(s->a->chunk, s->a->cols - col);
  columns_load(&s->q, col, n, pitch);
  columns_load(&s->wn, col, n, pitch);
  mul(s->c, s->q.values, s->wn.values, pitch);
}
AICORE void find_c(state *s, int64_t col) {
  s->c = ub_at_f32(s->vector, s->a->resident ? col : 0);
  if (!s->a->resident) make_c(s, col);
}
/* Once, all of it. */
AICORE void make_vector(state *s) {
  for (int64_t col = 0; s->a->resident && col < s->a->cols; col += s->a->chunk) {
    s->c = ub_at_f32(s->vector, col);
    make_c(s, col);
  }
}

/* The tile's blocks, and behind a whole tile's rows dh's. */
AICORE void load_blocks(const state *s, ub_f32 to, int64_t first, tile t, int64_t col) {
  const attn_res_arguments *a = s->a;
  const tile one = {1, t.cols, t.pitch};
  for (int64_t i = 0; i < t.rows; ++i) {
    const gm_rows v = block_rows(s, &a->v, s->v_words, first + i);
    load_tile(a->dtype, ub_at_f32(to, i * t.pitch * dtype_bytes(a->dtype) / 4), &a->space, &v, one, s->token, col);
  }
  if (s->backward) load_tile(a->dtype, ub_at_f32(to, a->group * s->row_elements), &a->space, &a->h, one, s->token, col);
}

AICORE tile tile_at(const attn_res_arguments *a, int64_t first, int64_t col) {
  return tile_of(a->dtype, least(a->group, a->count - first), least(a->chunk, a->cols - col));
}

AICORE void begin_token(state *s, int64_t token) {
  const attn_res_arguments *a = s->a;
  s->token = token;
  if (!a->held) return;
  in_begin(&s->in);
  for (int64_t col = 0; col < a->cols; col += a->chunk)
    load_blocks(s, ub_at_f32(ring_now(&s->in), col / a->chunk * s->tile_elements), 0, tile_at(a, 0, col), col);
  in_ready(&s->in);
}
AICORE void end_token(state *s) {
  if (s->a->held) in_done(&s->in);
}

/* The tile of blocks `first` on and columns `col` on, in f32; end_tile() after it. */
AICORE void begin_tile(state *s, int64_t first, int64_t col) {
  const attn_res_arguments *a = s->a;
  ub_f32 raw = ring_now(&s->in);
  s->t = tile_at(a, first, col);
  s->n = s->t.rows * s->t.pitch;
  if (a->held) {
    raw = ub_at_f32(raw, col / a->chunk * s->tile_elements);
  } else {
    in_begin(&s->in);
    load_blocks(s, raw, first, s->t, col);
    in_ready(&s->in);
  }
  s->value = values_of(a->dtype, s->wide, raw, s->t);
  const tile whole = whole_tile(a), one = {1, s->t.cols, s->t.pitch};
  const ub_f32 dh_wide = ub_at_f32(s->wide, whole.rows * whole.pitch);
  if (s->backward) s->dh = values_of(a->dtype, dh_wide, ub_at_f32(raw, a->group * s->row_elements), one);
}
AICORE void end_tile(state *s) {
  if (!s->a->held) in_done(&s->in);
}

/* to[first ..] += the sums of the rows of `work`, which is used up. */
AICORE void add_sums(const state *s, ub_f32 to, int64_t first, ub_f32 part) {
  row_sums(part, s->work, s->t);
  add(ub_at_f32(to, first), ub_at_f32(to, first), part, s->t.rows);
}

/* The word at `of`, for the scalar pipe. */
AICORE float word_of(ub_f32 of) {
  scalar_waits();
  const float value = s_read_f32(of, 0);
  vector_waits();
  return value;
}

/* ---- forward ---- */

typedef struct scores {
  ub_f32 dot, squares, rstd, a, part;
  ring out; /* a and rstd on their way */
} scores;

AICORE void sum_blocks(state *s, const scores *w) {
  const attn_res_arguments *a = s->a;
  const int64_t n = round_up(a->count, 8);
  duplicate(w->dot, 0, n);
  duplicate(w->squares, 0, n);
  for (int64_t col = 0; col < a->cols; col += a->chunk) {
    find_c(s, col);
    for (int64_t first = 0; first < a->count; first += a->group) {
      begin_tile(s, first, col);
      mul(s->work, s->value, s->value, s->n);
      add_sums(s, w->squares, first, w->part);
      tile_op(ROW_MUL, s->work, s->value, s->c, s->t, false);
      add_sums(s, w->dot, first, w->part);
      end_tile(s);
    }
  }
}

/* a and rstd of the token. Tokens without columns have scores of 0. */
AICORE void find_weights(const state *s, const scores *w) {
  const attn_res_arguments *a = s->a;
  const tile line = tile_of(TIGON_F32, 1, a->count);
  if (a->cols > 0) divide_sums(w->squares, w->part, a->cols, a->count);
  inverse_root(w->rstd, w->squares, a->eps, a->count);
  if (a->cols > 0) mul(w->dot, w->dot, w->rstd, a->count);
  mul_scalar(w->a, w->dot, 1, a->count);
  row_maxima(w->part, w->a, line);
  add_scalar(w->a, w->dot, -word_of(w->part), a->count);
  exponential(w->a, w->a, a->count);
  mul_scalar(w->dot, w->a, 1, a->count);
  row_sums(w->part, w->dot, line);
  mul_scalar(w->a, w->a, 1 / word_of(w->part), a->count);
}

AICORE void store_words(ring *out, gm_ptr to, ub_f32 from, int64_t token, int64_t count) {
  if (!to) return;
  out_begin(out);
  mul_scalar(ring_now(out), from, 1, count);
  out_ready(out);
  store_f32(to + token * count * 4, ring_now(out), 1, count);
  out_done(out);
}

AICORE void mix_blocks(state *s, const scores *w) {
  const attn_res_arguments *a = s->a;
  for (int64_t col = 0; col < a->cols; col += a->chunk) {
    const tile one = tile_of(a->dtype, 1, least(a->chunk, a->cols - col));
    duplicate(s->own, 0, one.pitch);
    for (int64_t first = 0; first < a->count; first += a->group) {
      begin_tile(s, first, col);
      by_rows(ROW_MUL, s->work, s->value, ub_at_f32(w->a, first), s->spread, s->t);
      add_column_sums(s->own, s->work, s->t);
      end_tile(s);
    }
    out_begin(&s->out);
    if (a->dtype == TIGON_F32)
      mul_scalar(ring_now(&s->out), s->own, 1, one.pitch);
    else
      narrow(a->dtype, ring_now(&s->out), s->own, one.pitch);
    out_ready(&s->out);
    store_tile(a->dtype, &a->space, &a->h, ring_now(&s->out), one, s->token, col);
    out_done(&s->out);
  }
}

AICORE_KERNEL(attn_res_fwd, attn_res_arguments) {
  state s = open_state(ub, a, false);
  scores w = {words_of(ub, a), words_of(ub, a), words_of(ub, a),
              words_of(ub, a), words_of(ub, a), ring_of(ub, 2, 2, 4 * a->count)};
  out_open(&w.out);
  make_vector(&s);
  for (int64_t token = block_index(); token < a->space.rows; token += block_count()) {
    begin_token(&s, token);
    sum_blocks(&s, &w);
    if (a->count > 0) {
      find_weights(&s, &w);
      store_words(&w.out, a->a, w.a, token, a->count);
      store_words(&w.out, a->rstd, w.rstd, token, a->count);
    }
    mix_blocks(&s, &w);
    end_token(&s);
  }
  out_close(&w.out);
  close_state(&s);
}

/* ---- backward ---- */

/* dv_i = a_i * dh + slope_i * (c - back_i * v_i). */
typedef struct slopes {
  ub_f32 a, rstd, slope, back, part;
  ub_f32 more, u; /* a tile; sums, of all columns where they are resident */
  ring in, sums_in, sums_out;
} slopes;

AICORE void load_words(ring *in, ub_f32 to, gm_ptr from, int64_t token, int64_t count) {
  in_begin(in);
  load_f32(ring_now(in), from + token * count * 4, 1, count);
  in_ready(in);
  mul_scalar(to, ring_now(in), 1, count);
  in_done(in);
}

AICORE void find_slopes(state *s, slopes *w) {
  const attn_res_arguments *a = s->a;
  const int64_t n = round_up(a->count, 8);
  duplicate(w->slope, 0, n);
  duplicate(w->back, 0, n);
  for (int64_t col = 0; col < a->cols; col += a->chunk) {
    find_c(s, col);
    for (int64_t first = 0; first < a->count; first += a->group) {
      begin_tile(s, first, col);
      tile_op(ROW_MUL, s->work, s->value, s->dh, s->t, false);
      add_sums(s, w->slope, first, w->part);
      tile_op(ROW_MUL, s->work, s->value, s->c, s->t, false);
      add_sums(s, w->back, first, w->part);
      end_tile(s);
    }
  }
  load_words(&w->in, w->a, a->a, s->token, a->count);
  load_words(&w->in, w->rstd, a->rstd, s->token, a->count);
  mul(w->part, w->a, w->slope, a->count);
  row_sums(s->spread, w->part, tile_of(TIGON_F32, 1, a->count));
  add_scalar(w->slope, w->slope, -word_of(s->spread), a->count);
  mul(w->slope, w->slope, w->a, a->count);
  mul(w->slope, w->slope, w->rstd, a->count);
  mul(w->back, w->back, w->rstd, a->count);
  mul(w->back, w->back, w->rstd, a->count);
  divide_sums(w->back, w->part, a->cols, a->count);
}

/* `own` = dv of the tile; `more` = its terms of u. */
AICORE void find_dv(const state *s, const slopes *w, int64_t first) {
  const ub_f32 slope = ub_at_f32(w->slope, first);
  duplicate(s->own, 0, s->n);
  tile_op(ROW_ADD, s->own, s->own, s->dh, s->t, false);
  by_rows(ROW_MUL, s->own, s->own, ub_at_f32(w->a, first), s->spread, s->t);
  by_rows(ROW_MUL, s->work, s->value, ub_at_f32(w->back, first), s->spread, s->t);
  mul_scalar(s->work, s->work, -1, s->n);
  tile_op(ROW_ADD, s->work, s->work, s->c, s->t, false);
  by_rows(ROW_MUL, s->work, s->work, slope, s->spread, s->t);
  add(s->own, s->own, s->work, s->n);
  if (s->a->slabs) by_rows(ROW_MUL, w->more, s->value, slope, s->spread, s->t);
}

AICORE void store_dv(state *s, int64_t first, int64_t col) {
  const attn_res_arguments *a = s->a;
  const int64_t size = dtype_bytes(a->dtype);
  const tile one = {1, s->t.cols, s->t.pitch};
  out_begin(&s->out);
  if (a->dtype == TIGON_F32)
    mul_scalar(ring_now(&s->out), s->own, 1, s->n);
  else
    narrow(a->dtype, ring_now(&s->out), s->own, s->n);
  out_ready(&s->out);
  for (int64_t i = 0; i < s->t.rows; ++i) {
    const gm_rows dv = block_rows(s, &a->dv, s->dv_words, first + i);
    store_tile(a->dtype, &a->space, &dv, ub_at_f32(ring_now(&s->out), i * s->t.pitch * size / 4), one, s->token, col);
  }
  out_done(&s->out);
}

/* The sums of a chunk: where they stay on chip, or as the program's last token left them in its slab. There are several chunks
 * then, and the store of one was waited for at the next one's. */
AICORE ub_f32 begin_sums(const state *s, slopes *w, int64_t col, int64_t cols) {
  const attn_res_arguments *a = s->a;
  if (a->resident) return ub_at_f32(w->u, col);
  in_begin(&w->sums_in);
  load_f32(ring_now(&w->sums_in), a->slabs + (block_index() * a->cols + col) * 4, 1, cols);
  in_ready(&w->sums_in);
  mul_scalar(w->u, ring_now(&w->sums_in), 1, cols);
  in_done(&w->sums_in);
  return w->u;
}
AICORE void end_sums(const state *s, slopes *w, int64_t col, int64_t cols) {
  const attn_res_arguments *a = s->a;
  if (a->resident) return;
  out_begin(&w->sums_out);
  mul_scalar(ring_now(&w->sums_out), w->u, 1, cols);
  out_ready(&w->sums_out);
  store_f32(a->slabs + (block_index() * a->cols + col) * 4, ring_now(&w->sums_out), 1, cols);
  out_done(&w->sums_out);
}

AICORE void differentiate(state *s, slopes *w, bool first_token) {
  const attn_res_arguments *a = s->a;
  for (int64_t col = 0; col < a->cols; col += a->chunk) {
    const int64_t cols = least(a->chunk, a->cols - col), pitch = round_up(cols, 8);
    ub_f32 u = w->u;
    find_c(s, col);
    if (a->slabs && (a->resident || !first_token)) u = begin_sums(s, w, col, cols);
    if (a->slabs && first_token) duplicate(u, 0, pitch);
    for (int64_t first = 0; first < a->count; first += a->group) {
      begin_tile(s, first, col);
      find_dv(s, w, first);
      store_dv(s, first, col);
      if (a->slabs) {
        fold_rows(w->more, s->t);
        add(u, u, w->more, cols);
      }
      end_tile(s);
    }
    if (a->slabs) end_sums(s, w, col, cols);
  }
}

AICORE_KERNEL(attn_res_bwd, attn_res_arguments) {
  state s = open_state(ub, a, true);
  const tile t = whole_tile(a);
  slopes w = {.a = words_of(ub, a), .rstd = words_of(ub, a), .slope = words_of(ub, a), .back = words_of(ub, a)};
  w.part = words_of(ub, a);
  w.more = ub_alloc_f32(ub, a->slabs ? t.rows * t.pitch : 0);
  w.u = ub_alloc_f32(ub, !a->slabs ? 0 : a->resident ? round_up(a->cols, a->chunk) + t.pitch : t.pitch);
  w.in = ring_of(ub, 4, 1, 4 * a->count);
  w.sums_in = ring_of(ub, 5, 1, a->slabs && !a->resident ? 4 * t.pitch : 0);
  w.sums_out = ring_of(ub, 2, 1, a->slabs && !a->resident ? 4 * t.pitch : 0);
  if (a->resident) w.sums_out.start = w.u;
  in_open(&w.in);
  in_open(&w.sums_in);
  out_open(&w.sums_out);
  make_vector(&s);
  for (int64_t token = block_index(); token < a->space.rows; token += block_count()) {
    begin_token(&s, token);
    if (a->count > 0) find_slopes(&s, &w);
    differentiate(&s, &w, token == block_index());
    end_token(&s);
  }
  if (a->slabs && a->resident) {
    out_begin(&w.sums_out);
    out_ready(&w.sums_out);
    store_f32(a->slabs + block_index() * a->cols * 4, w.u, 1, a->cols);
    out_done(&w.sums_out);
  }
  in_close(&w.in);
  in_close(&w.sums_in);
  out_close(&w.sums_out);
  close_state(&s);
}

/* ---- dq, dwn ---- */

AICORE_KERNEL(attn_res_sums, attn_res_sums_arguments) {
  ring in = ring_of(ub, 0, 2, a->chunk * 4), other = ring_of(ub, 2, 1, a->chunk * 4),
       out = ring_of(ub, 0, 1, a->chunk * 4);
  const ub_f32 sum = ub_alloc_f32(ub, a->chunk), wide = ub_alloc_f32(ub, a->chunk);
  in_open(&in);
  in_open(&other);
  out_open(&out);
  for (int64_t c = block_index() * a->chunk; c < a->cols; c += block_count() * a->chunk) {
    const int64_t n = least(a->chunk, a->cols - c), filled = round_up(n, 8);
    duplicate(sum, 0, a->chunk);
    for (int64_t i = 0; i < a->count; ++i) {
      in_begin(&in);
      load_f32(ring_now(&in), a->slabs + (i * a->cols + c) * 4, 1, n);
      in_ready(&in);
      add(sum, sum, ring_now(&in), filled);
      in_done(&in);
    }
    in_begin(&other);
    load(a->factor_dtype, other.start, a->factor + c * dtype_bytes(a->factor_dtype), 1, n);
    in_ready(&other);
    mul(sum, sum, values_of(a->factor_dtype, wide, other.start, (tile){1, n, filled}), filled);
    in_done(&other);
    if (a->accumulate) {
      in_begin(&other);
      load(a->dtype, other.start, a->to + c * dtype_bytes(a->dtype), 1, n);
      in_ready(&other);
      add(sum, sum, values_of(a->dtype, wide, other.start, (tile){1, n, filled}), filled);
      in_done(&other);
    }
    out_begin(&out);
    if (a->dtype == TIGON_F32)
      mul_scalar(out.start, sum, 1, filled);
    else
      narrow(a->dtype, out.start, sum, filled);
    out_ready(&out);
    store(a->dtype, a->to + c * dtype_bytes(a->dtype), out.start, 1, n);
    out_done(&out);
  }
  in_close(&in);
  in_close(&other);
  out_close(&out);
}
