/* Backward of rms_norm, fused_add_rms_norm, modulated_rms_norm, layer_norm and group_norm: with xhat = (x - mean) * rstd and
 * g = dy * (w + w_offset)
 *   dx = rstd * (g - mean(g) - xhat * mean(g * xhat))        db = sum over rows of dy
 *   dw = sum over rows of dy * xhat, with xhat rounded as forward did
 * without the means of x and g in the first two, and for fused_add_rms_norm dx + ds in the place of dx. With a gate z of
 * rms_norm dy * silu(z) takes the place of dy, and dz = dy * silu'(z) * xhat * (w + w_offset), xhat rounded as in dw.
 * group_norm's dw and db are sums over the columns of a channel, too. modulated_rms_norm's weights are (1 + scale) * (w +
 * w_offset); a second stage turns each group's dw and db into its gradients (modulated_rms_norm.c). One walk for all of the
 * plan's cases. If a row does not stay on chip and dw or db is wanted (E, F), the rows' sums come first, and are handed over in
 * global memory. Then each panel of columns takes all rows of the task, so its dw and db never leave the chip. */
#include "ascend/kernel/norm_bwd.h"

#include "ascend/kernel/gate.h"
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
  ring in;       /* dy, x, z */
  int64_t apart; /* f32 elements from one of them to the next */
  ring ds, dx, dz, arrival, out;
  ring words;        /* rstd, then the mean */
  ub_f32 packed;     /* as those, where they have 32 bytes a row */
  ub_f32 rstd, mean; /* words of the tile's rows */
  bool dx_begun;     /* its buffer is there, for other work so far */
  bool resident;     /* the weights of all columns are on chip, those of one group at a time */
  int64_t group;     /* whose; -1: none yet */
  columns w, scale;
  bool weighted;             /* by w, by a scale or by both: */
  ub_f32 weights;            /* their values, or their product, in the scale's place */
  int64_t pitch, sums_pitch; /* pitch of a vector of channels: for a chunk; for sum_dw */
  row_sum dot, g;            /* sums of g * xhat and, with a mean, of g */
  ub_f32 sum_dw, sum_db;     /* sums of all channels if they stay on chip, else of a panel's */
  ub_f32 xhat, work, wide;   /* f32 tiles; `wide` (dy) with 16-bit dtypes alone */
  gate_tiles gate;           /* tiles of silu(z) */
} state;

/* Tiles of the gate: with 16-bit dtypes four of its own, in f32 one beside the buffers of z, dx and dz. */
AICORE gate_tiles gate_of(ub_arena *ub, const state *s, tile chunk) {
  const bool f32 = s->a->dtype == TIGON_F32;
  const int64_t n = chunk.rows * chunk.pitch, own = f32 ? 0 : n;
  gate_tiles k = {.x = ub_alloc_f32(ub, n), .t = s->work};
  k.u = ub_alloc_f32(ub, own);
  k.f = ub_alloc_f32(ub, own);
  k.y = ub_alloc_f32(ub, own);
  return k;
}

AICORE state open_state(ub_arena *ub, const norm_bwd_arguments *a) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const int64_t words = round_up(a->w.tile_rows, 8);
  const bool apart = !a->w.cached || chunk.cols < a->w.cols;
  const bool resident = a->w.tile_cols == a->w.cols, by_block = words_apart(&a->groups, a->w.tile_rows);
  state s = {.a = a, .resident = resident, .group = -1, .weighted = a->weight || a->scale.data};
  const int64_t bytes = round_up(tile_bytes(a->dtype, kept), UB_BLOCK);
  s.in = ring_of(ub, 0, a->w.cached ? a->w.buffers : 2, (a->z.data ? 3 : 2) * bytes);
  s.apart = bytes / 4;
  s.dx = ring_of(ub, 0, 2, tile_bytes(a->dtype, chunk));
  s.dz = ring_of(ub, 4, a->dz.data ? 2 : 0, tile_bytes(a->dtype, chunk));
  s.ds = ring_of(ub, 6, a->ds.data ? 2 : 0, tile_bytes(a->dtype, chunk));
  s.words = ring_of(ub, 4, 2, (a->mean ? 2 : 1) * words * (by_block ? UB_BLOCK : 4));
  s.packed = ub_alloc_f32(ub, by_block ? 2 * words : 0);
  if (by_block) v_duplicate_f32(s.packed, 0, 2 * words);
  s.arrival = ring_of(ub, 3, 1, a->w.cached ? 0 : round_up(a->w.splits, 8) * 4);
  s.dot = row_sum_of(ub, words, apart);
  s.g = row_sum_of(ub, a->mean ? words : 0, apart && a->mean);
  s.xhat = ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  s.work = ub_alloc_f32(ub, work_elements(chunk));
  s.wide = a->dtype == TIGON_F32 ? s.work : ub_alloc_f32(ub, chunk.rows * chunk.pitch);
  if (a->z.data) s.gate = gate_of(ub, &s, chunk);
  s.pitch = tile_of(a->dtype, 1, most_channels(&a->groups, &a->w)).pitch;
  s.sums_pitch = a->partials ? s.pitch : tile_of(a->dtype, 1, a->w.cols / a->groups.run).pitch;
  const bool passes_by = resident && a->scale.data; /* w is there for a product with the scale alone */
  s.w = columns_of(ub, 2, a->weight, a->w_dtype, a->w_offset, passes_by ? 0 : s.pitch, s.work, resident);
  if (passes_by) s.w.values = s.xhat;
  s.scale = columns_of(ub, resident ? 2 : 6, a->scale.data, a->scale_dtype, 1, a->scale.data ? s.pitch : 0, s.work,
                       resident); /* one stage; ds has the other flag, and never goes with a scale */
  s.weights = a->scale.data ? s.scale.values : s.w.values;
  s.sum_dw = ub_alloc_f32(ub, a->dw ? s.sums_pitch : 0);
  s.sum_db = ub_alloc_f32(ub, a->db ? s.sums_pitch : 0);
  s.out = (ring){s.dot.part, 0, 2, 1, 0};
  in_open(&s.in);
  in_open(&s.ds);
  in_open(&s.w.stage);
  if (!resident && a->scale.data) in_open(&s.scale.stage);
  in_open(&s.words);
  in_open(&s.arrival);
  out_open(&s.dx);
  out_open(&s.dz);
  out_open(&s.out);
  sync_pipe(PIPE_V);
  return s;
}

/* A buffer of dx, first for other work. */
AICORE ub_f32 begin_dx(state *s) {
  if (!s->dx_begun) out_begin(&s->dx);
  s->dx_begun = true;
  return ring_now(&s->dx);
}
AICORE void end_dx(state *s) {
  out_done(&s->dx);
  s->dx_begun = false;
}

AICORE void close_state(state *s) {
  if (s->dx_begun) {
    out_ready(&s->dx);
    end_dx(s);
  }
  in_close(&s->in);
  in_close(&s->ds);
  in_close(&s->w.stage);
  if (!s->resident && s->a->scale.data) in_close(&s->scale.stage);
  in_close(&s->words);
  in_close(&s->arrival);
  out_close(&s->dx);
  out_close(&s->dz);
  out_close(&s->out);
}

/* The weights of columns [c, c + cols) of a group. */
AICORE void load_weights(state *s, int64_t group, int64_t c, int64_t cols) {
  const norm_bwd_arguments *a = s->a;
  const grouping *g = &a->groups;
  if (a->scale.data) {
    s->scale.from = row_at(&a->groups_space, &a->scale, dtype_bytes(a->scale_dtype), group, 0);
    columns_load(&s->scale, c, cols, s->pitch);
    if (a->weight) columns_load(&s->w, c, cols, s->pitch);
    if (a->weight) mul(s->scale.values, s->scale.values, s->w.values, s->pitch);
    return;
  }
  if (!a->weight) return;
  if (g->run > 1) vector_waits();
  columns_load(&s->w, group * (a->w.cols / g->run) + c / g->run, channels_of(g, c, cols), s->pitch);
  if (g->run > 1) scalar_waits();
}

AICORE void load_inputs(const state *s, tile t, int64_t r, int64_t c) {
  const norm_bwd_arguments *a = s->a;
  in_begin(&s->in);
  load_tile(a->dtype, ring_now(&s->in), &a->space, &a->dy, t, r, c);
  load_tile(a->dtype, ub_at_f32(ring_now(&s->in), s->apart), &a->space, &a->x, t, r, c);
  if (a->z.data) load_tile(a->dtype, ub_at_f32(ring_now(&s->in), 2 * s->apart), &a->space, &a->z, t, r, c);
  in_ready(&s->in);
}
/* Columns from c on of what load_inputs() left, in its dtype: of dy, x, z. */
AICORE ub_f32 raw_of(const state *s, int input, int64_t c) {
  const int64_t at = s->a->w.cached ? c * dtype_bytes(s->a->dtype) / 4 : 0;
  return ub_at_f32(ring_now(&s->in), input * s->apart + at);
}

/* xhat, and dy in f32, of columns [c, c + t.cols). chunk_done() ends it. */
AICORE ub_f32 chunk_of(state *s, tile t, int64_t r, int64_t c) {
  const int64_t dtype = s->a->dtype;
  if (!s->a->w.cached) load_inputs(s, t, r, c);
  const ub_f32 x = values_of(dtype, s->xhat, raw_of(s, 1, c), t);
  if (s->a->mean) {
    by_rows(ROW_SUB, s->xhat, x, s->mean, s->work, t);
  }
  by_rows(ROW_MUL, s->xhat, s->a->mean ? s->xhat : x, s->rstd, s->work, t);
  return values_of(dtype, s->wide, raw_of(s, 0, c), t);
}
AICORE void chunk_done(state *s) {
  if (!s->a->w.cached) in_done(&s->in);
}

/* silu(z) of a chunk in x, and with `backward` its slope in y; `work` is used up. */
AICORE gate_tiles gate_chunk(state *s, tile t, int64_t c, bool backward) {
  gate_tiles k = s->gate;
  const bool f32 = s->a->dtype == TIGON_F32;
  k.n = t.rows * t.pitch;
  k.u = values_of(s->a->dtype, k.u, raw_of(s, 2, c), t);
  if (f32) k.f = begin_dx(s);
  if (f32) k.y = backward ? ring_now(&s->dz) : k.x;
  logistic(&k, SILU, f32, backward);
  return k;
}

/* The sum's share of a chunk, which is in `part` unless it is the first one. */
AICORE void add_part(row_sum sum, bool first, int64_t rows) {
  if (first) return;
  v_add_f32(sum.all, sum.all, sum.part, rows);
  sync_pipe(PIPE_V);
}

/* work = g * xhat, and the rows' sums of g where a mean asks for them. */
AICORE void find_products(state *s, ub_f32 sums_of_g, ub_f32 dy, tile t, int64_t c) {
  const norm_bwd_arguments *a = s->a;
  const int64_t n = t.rows * t.pitch;
  gate_tiles gate = {0};
  if (a->z.data) gate = gate_chunk(s, t, c, false);
  if (a->mean) {
    const ub_f32 g = !s->weighted ? dy : a->dtype == TIGON_F32 ? begin_dx(s) : s->wide;
    if (s->weighted) channel_op(&a->groups, ROW_MUL, g, dy, s->weights, t, c, s->work);
    row_sums_kept(sums_of_g, s->work, g, t);
    v_mul_f32(s->work, s->xhat, g, n);
    sync_pipe(PIPE_V);
  } else {
    v_mul_f32(s->work, s->xhat, dy, n);
    sync_pipe(PIPE_V);
    if (s->weighted) tile_op(ROW_MUL, s->work, s->work, s->weights, t, false);
  }
  if (a->z.data) mul(s->work, s->work, gate.x, n);
}

/* The rows' sums of g * xhat, and of g, over columns [col, col_end). */
AICORE void sum_products(state *s, box b, int64_t r, int64_t rows) {
  const norm_bwd_arguments *a = s->a;
  for (int64_t c = b.col, end; c < b.col_end; c = end) {
    end = chunk_end(&a->groups, a->w.tile_cols, c, b.col_end);
    const tile t = tile_of(a->dtype, rows, end - c);
    const bool first = c == b.col;
    const ub_f32 dy = chunk_of(s, t, r, c);
    if (!s->resident) load_weights(s, r / a->groups.batch, c, t.cols);
    find_products(s, first ? s->g.all : s->g.part, dy, t, c);
    chunk_done(s);
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

/* The chunk's share of dw and db; `sums`: room for a value a channel. */
AICORE void add_shares(state *s, ub_f32 dy, ub_f32 sums, tile t, int64_t c) {
  const norm_bwd_arguments *a = s->a;
  const grouping *g = &a->groups;
  const int64_t n = t.rows * t.pitch, base = a->partials ? c / g->run : 0;
  const bool rounds = a->casting != TIGON_CASTING_GEMMA && a->dtype != TIGON_F32;
  if (g->run > 1) {
    if (a->dw) add_channel_sums(g, s->sum_dw, base, s->xhat, dy, true, t, c, sums, s->work);
    if (a->db) add_channel_sums(g, s->sum_db, base, dy, dy, false, t, c, sums, s->work);
    return;
  }
  if (a->dw) {
    if (rounds) round_to(a->dtype, s->work, s->xhat, sums, n);
    v_mul_f32(s->work, rounds ? s->work : s->xhat, dy, n);
    sync_pipe(PIPE_V);
    add_column_sums(ub_at_f32(s->sum_dw, c - base), s->work, t);
  }
  if (a->db) add_column_sums_kept(ub_at_f32(s->sum_db, c - base), s->work, dy, t);
}

/* dy *= silu(z) of a chunk, and its dz. */
AICORE void chunk_of_dz(state *s, ub_f32 dy, tile t, int64_t r, int64_t c) {
  const norm_bwd_arguments *a = s->a;
  const int64_t dtype = a->dtype, n = t.rows * t.pitch;
  const bool f32 = dtype == TIGON_F32;
  if (a->dz.data) out_begin(&s->dz);
  gate_tiles k = gate_chunk(s, t, c, a->dz.data);
  if (a->dz.data) {
    mul(k.y, k.slope, dy, n);
    if (a->casting != TIGON_CASTING_GEMMA && !f32) round_to(dtype, k.u, s->xhat, k.f, n);
    mul(k.y, k.y, a->casting != TIGON_CASTING_GEMMA && !f32 ? k.u : s->xhat, n);
    if (s->weighted) tile_op(ROW_MUL, k.y, k.y, s->weights, t, false);
    if (!f32) narrow(dtype, ring_now(&s->dz), k.y, n);
    out_ready(&s->dz);
    store_tile(dtype, &a->space, &a->dz, ring_now(&s->dz), t, r, c);
    out_done(&s->dz);
  }
  mul(dy, dy, k.x, n);
}

/* dx of a chunk, and its share of dw and db. With `there`, xhat and dy are still what sum_products() made of them. The column
 * vectors of the chunk are on chip. */
AICORE void chunk_of_dx(state *s, tile t, int64_t r, int64_t c, bool there) {
  const norm_bwd_arguments *a = s->a;
  const int64_t dtype = a->dtype, n = t.rows * t.pitch;
  const bool f32 = dtype == TIGON_F32, again = a->mean && s->weighted; /* `wide` has g by now */
  const ub_f32 dy = !there         ? chunk_of(s, t, r, c)
                    : f32 || again ? values_of(dtype, s->wide, ring_now(&s->in), t)
                                   : s->wide;
  if (a->z.data) chunk_of_dz(s, dy, t, r, c);
  const ub_f32 dx = begin_dx(s);
  add_shares(s, dy, dx, t, c);
  const ub_f32 g = f32 ? dx : s->wide;
  by_rows(ROW_MUL, s->xhat, s->xhat, s->dot.all, s->work, t);
  if (s->weighted) channel_op(&a->groups, ROW_MUL, g, dy, s->weights, t, c, s->work);
  v_sub_f32(g, s->weighted ? g : dy, s->xhat, n);
  if (a->mean) {
    by_rows(ROW_SUB, g, g, s->g.all, s->work, t);
  }
  by_rows(ROW_MUL, g, g, s->rstd, s->work, t);
  chunk_done(s);
  if (a->ds.data) add_ds(s, g, t, r, c);
  if (!f32) narrow(dtype, dx, g, n);
  out_ready(&s->dx);
  store_tile(dtype, &a->space, &a->dx, dx, t, r, c);
  end_dx(s);
}

AICORE void load_words(state *s, int64_t r, int64_t rows) {
  const norm_bwd_arguments *a = s->a;
  const bool by_block = words_apart(&a->groups, a->w.tile_rows);
  const int64_t words = round_up(a->w.tile_rows, 8), step = by_block ? UB_BLOCK / 4 : 1;
  const ub_f32 to = by_block ? s->packed : ring_now(&s->words);
  const gm_ptr from[] = {a->rstd, a->mean};
  in_begin(&s->words);
  for (int i = 0; i < (a->mean ? 2 : 1); ++i)
    for (int64_t k = 0; k < rows; k += by_block ? 1 : rows)
      load_f32(ub_at_f32(ring_now(&s->words), (i * words + k) * step), from[i] + word_of(&a->groups, r + k) * 4, 1,
               by_block ? 1 : rows);
  in_ready(&s->words);
  s->rstd = to;
  s->mean = ub_at_f32(to, words);
  if (!by_block) return;
  const tile first = {rows, 1, UB_BLOCK / 4};
  row_sums(s->rstd, ring_now(&s->words), first);
  row_sums(s->mean, ub_at_f32(ring_now(&s->words), words * step), first);
}

AICORE void means_of_sums(state *s, int64_t rows) {
  const float share = 1.0f / (float)s->a->w.cols;
  v_mul_scalar_f32(s->dot.all, s->dot.all, share, round_up(rows, 8));
  if (s->a->mean) v_mul_scalar_f32(s->g.all, s->g.all, share, round_up(rows, 8));
  sync_pipe(PIPE_V);
}

/* New sums for dw and db, once those before have been stored. */
AICORE void clear_slabs(state *s) {
  out_begin(&s->out);
  if (s->a->dw) v_duplicate_f32(s->sum_dw, 0, s->sums_pitch);
  if (s->a->db) v_duplicate_f32(s->sum_db, 0, s->sums_pitch);
  sync_pipe(PIPE_V);
}
/* Elements [at, at + n) of a slab of each. clear_slabs() goes before. */
AICORE void store_slabs(state *s, int64_t slab, int64_t at, int64_t n) {
  const norm_bwd_arguments *a = s->a;
  out_ready(&s->out);
  if (a->dw && n > 0) store_f32(a->dw + (slab * a->slab_pitch + at) * 4, s->sum_dw, 1, n);
  if (a->db && n > 0) store_f32(a->db + (slab * a->slab_pitch + at) * 4, s->sum_db, 1, n);
  out_done(&s->out);
}
AICORE void store_zeros(state *s, int64_t slab, int64_t at, int64_t end) {
  for (; at < end; at += s->sums_pitch) {
    clear_slabs(s);
    store_slabs(s, slab, at, least(s->sums_pitch, end - at));
  }
}

/* Sums and dx of rows [r, r + rows) at once. */
AICORE void rows_at_a_time(state *s, box b, int64_t r, int64_t rows) {
  const norm_bwd_arguments *a = s->a;
  const bool whole = a->w.cached && s->resident;
  load_words(s, r, rows);
  if (a->w.cached) load_inputs(s, tile_of(a->dtype, rows, a->w.cols), r, 0);
  sum_products(s, b, r, rows);
  means_of_sums(s, rows);
  for (int64_t c = 0, end; c < a->w.cols; c = end) {
    end = chunk_end(&a->groups, a->w.tile_cols, c, a->w.cols);
    const tile t = tile_of(a->dtype, rows, end - c);
    if (!s->resident) load_weights(s, r / a->groups.batch, c, t.cols);
    chunk_of_dx(s, t, r, c, whole);
  }
  if (a->w.cached) in_done(&s->in);
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

/* The sums of a channel that the next panel has the rest of, from the end of this panel's to the start of its own. */
typedef struct carried {
  float dw, db;
} carried;

/* Vectors go on after the scalar pipe, which knows that they do: it may set the flag again at once. They have nothing to do here. */
AICORE void vectors_go_on(void) {
  vector_waits();
  scalar_waits();
}
AICORE carried carry_from(const state *s, int64_t i) {
  carried to = {0, 0};
  scalar_waits();
  if (s->a->dw) to.dw = s_read_f32(s->sum_dw, i);
  if (s->a->db) to.db = s_read_f32(s->sum_db, i);
  vectors_go_on();
  return to;
}
AICORE void carry_on(const state *s, carried from) {
  scalar_waits();
  if (s->a->dw) s_write_f32(s->sum_dw, 0, from.dw);
  if (s->a->db) s_write_f32(s->sum_db, 0, from.db);
  vectors_go_on();
}

/* dx of the task, panel by panel. */
AICORE void panels(state *s, box b, int64_t slab) {
  const norm_bwd_arguments *a = s->a;
  const grouping *g = &a->groups;
  const bool slabs = a->dw || a->db;
  const int64_t channels = a->w.cols / g->run, group = b.row / g->batch;
  carried rest = {0, 0};
  for (int64_t c = b.col, end; c < b.col_end; c = end) {
    end = chunk_end(g, a->w.tile_cols, c, b.col_end);
    const tile t = tile_of(a->dtype, 1, end - c);
    const int64_t count = channels_of(g, c, t.cols), cut = end < b.col_end && end % g->run > 0;
    if (!s->resident) load_weights(s, group, c, t.cols);
    if (slabs) clear_slabs(s);
    if (slabs && c > b.col && c % g->run > 0) carry_on(s, rest);
    for (int64_t r = b.row; r < b.row_end; ++r) {
      load_words(s, r, 1);
      join_splits(s->dot.all, &s->arrival, handed_over(s, r, 0), a->w.splits);
      if (a->mean) join_splits(s->g.all, &s->arrival, handed_over(s, r, 1), a->w.splits);
      means_of_sums(s, 1);
      chunk_of_dx(s, t, r, c, false);
      in_done(&s->words);
    }
    if (slabs && cut) rest = carry_from(s, count - 1);
    if (slabs) store_slabs(s, slab, group * channels + c / g->run, count - cut);
  }
  if (!slabs || !a->slab_splits) return;
  store_zeros(s, slab, group * channels, group * channels + b.col / g->run);
  store_zeros(s, slab, group * channels + (b.col_end - 1) / g->run + 1, (group + 1) * channels);
}

AICORE_KERNEL(norm_bwd, norm_bwd_arguments) {
  state s = open_state(ub, a);
  const grouping *g = &a->groups;
  const bool slabs = a->dw || a->db;
  const int64_t ranges = a->w.row_tasks / a->w.groups, channels = a->w.cols / g->run;
  for (int64_t t = block_index(); t < a->w.tasks; t += block_count()) {
    const box b = walk_task(&a->w, t);
    const int64_t range = t / a->w.splits % ranges, group = b.row / g->batch;
    const int64_t slab = a->slab_splits ? range * a->w.splits + b.split : range;
    if (s.resident && group != s.group) {
      stage_again(&s.w.stage);
      load_weights(&s, group, 0, a->w.cols);
      s.group = group;
    }
    if (!a->partials) {
      if (slabs) clear_slabs(&s);
      for (int64_t r = b.row, rows; r < b.row_end; r += rows) {
        rows = rows_of(g, a->w.tile_rows, r, b.row_end);
        rows_at_a_time(&s, b, r, rows);
      }
      if (slabs) store_slabs(&s, slab, group * channels, channels);
      continue;
    }
    if (a->parts & PART_SUMS) hand_over_sums(&s, b);
    if (a->parts == (PART_SUMS | PART_ROWS)) sync_pipe(PIPE_ALL); /* the sums are stored before they are read */
    if (a->parts & PART_ROWS) panels(&s, b, slab);
  }
  close_state(&s);
}
