/* Kernels that sum over the columns of each row before they store it. A tile's rows are on chip at once (cases B to D) or come by in
 * chunks of columns, once for the sums and once for the output (E, F). Rows that are split over cores (F) have two launches: the
 * splits' sums are handed over between them. */
#ifndef TIGON_ASCEND_KERNEL_REDUCE_H
#define TIGON_ASCEND_KERNEL_REDUCE_H

#include "ascend/kernel/ordered.h"
#include "ascend/kernel/rows.h"

typedef struct reduce_arguments {
  walk w;
  gm_space space;
  gm_rows in[2], out; /* the second input may be absent: data NULL */
  gm_ptr partials;    /* [sums, rows, splits] f32, when parts come apart */
  int64_t dtype, parts;
  /* What an operator has besides, NULL where it has it not. */
  gm_ptr vector[2]; /* numbers that all rows share */
  gm_ptr words;     /* f32, as many of each row as reduce_open_words() is told, read or stored */
  gm_ptr totals;    /* f32, [the plan's ranges of rows, sums] */
  int64_t vector_dtype[2];
  float number, unused;
} reduce_arguments;

/* value[i]: input i of a chunk in f32. result: where its output is worked out in f32: the output's own buffer, or with 16-bit dtypes the
 * place of input 0, unless a kernel chooses another. */
typedef struct reduction {
  const reduce_arguments *a;
  int inputs, sum_count, word_count;
  ring in, out, arrival, given;
  ring packed, totalled; /* a tile's words as memory has them; a task's totals */
  int64_t elements;      /* f32 elements of one input's tile in a buffer */
  int64_t words;         /* from the values of a sum, or of a word, to those of the next */
  ub_f32 sums, part;     /* [sum_count, words], a value a row: of all chunks, and of one where there are several */
  ub_f32 order;          /* byte offsets between words as memory has them and [word_count, words] */
  ub_f32 total, more;    /* [sum_count] of a task's rows, of a tile's */
  ub_f32 work, wide[2];  /* f32 tiles; `wide` with 16-bit dtypes alone */
  ub_f32 value[2], result;
  int64_t task, row, rows, col; /* the place of the chunk; -1 before the first one */
  int64_t n;                    /* its elements, the padding of its rows included */
  box b;
  tile t;
} reduction;

AICORE reduction reduce_open(ub_arena *ub, const reduce_arguments *a, int sum_count) {
  const tile chunk = tile_of(a->dtype, a->w.tile_rows, a->w.tile_cols);
  const tile kept = tile_of(a->dtype, a->w.tile_rows, a->w.cached ? a->w.cols : a->w.tile_cols);
  const int64_t bytes = round_up(tile_bytes(a->dtype, kept), UB_BLOCK);
  const int inputs = a->in[1].data ? 2 : 1;
  reduction s = {.a = a, .inputs = inputs, .sum_count = sum_count, .elements = bytes / 4, .task = -1};
  s.words = round_up(a->w.tile_rows, 8);
  s.in = ring_of(ub, 0, a->w.cached ? a->w.buffers : 2, inputs * bytes);
  s.out = ring_of(ub, 0, 2, tile_bytes(a->dtype, chunk));
  s.arrival = ring_of(ub, 2, 1, a->parts & PART_SUMS ? 0 : a->w.splits * 4);
  s.sums = ub_alloc_f32(ub, sum_count * s.words);
  s.part = ub_alloc_f32(ub, chunk.cols < a->w.cols ? sum_count * s.words : 0);
  s.given = (ring){s.sums, 0, 2, 1, 0};
  s.total = ub_alloc_f32(ub, a->totals ? 8 : 0);
  s.more = ub_alloc_f32(ub, a->totals ? 8 : 0);
  s.totalled = (ring){s.total, 0, 5, 1, 0};
  s.work = ub_alloc_f32(ub, work_elements(chunk));
  for (int i = 0; i < inputs; ++i) s.wide[i] = ub_alloc_f32(ub, a->dtype == TIGON_F32 ? 0 : chunk.rows * chunk.pitch);
  v_duplicate_f32(s.sums, 0, sum_count * s.words);
  sync_pipe(PIPE_V);
  in_open(&s.in);
  in_open(&s.arrival);
  out_open(&s.out);
  out_open(&s.given);
  out_open(&s.totalled);
  return s;
}

/* For a kernel with `count` words a row, which it has in arrays [count, words]: `loaded`, or stored. */
AICORE void reduce_open_words(reduction *s, ub_arena *ub, int count, bool loaded) {
  const int64_t n = count * s->words;
  s->word_count = count;
  s->packed = ring_of(ub, 3, 2, n * 4);
  s->order = ub_alloc_f32(ub, n);
  for (int64_t i = 0; i < n; ++i) {
    const int64_t packed = i % s->words * count + i / s->words, apart = i % count * s->words + i / count;
    s_write_i32(s->order, i, (int32_t)(4 * (loaded ? packed : apart)));
  }
  vector_waits();
  duplicate(s->packed.start, 0, s->packed.count * n);
  in_open(&s->packed);
  out_open(&s->packed);
}

AICORE void reduce_close(const reduction *s) {
  in_close(&s->in);
  in_close(&s->arrival);
  out_close(&s->out);
  out_close(&s->given);
  out_close(&s->totalled);
  in_close(&s->packed);
  out_close(&s->packed);
}

/* The values of sum i, one a row of the tile. */
AICORE ub_f32 reduce_sum(const reduction *s, int64_t i) { return ub_at_f32(s->sums, i * s->words); }
/* Where a kernel puts sum i of a chunk. */
AICORE ub_f32 reduce_chunk_sum(const reduction *s, int64_t i) {
  return ub_at_f32(s->col == s->b.col ? s->sums : s->part, i * s->words);
}

AICORE void reduce_store_totals(reduction *s) {
  out_ready(&s->totalled);
  if (s->a->parts & PART_ROWS && s->b.split == 0)
    store_f32(s->a->totals + s->task / s->a->w.splits * s->sum_count * 4, s->total, 1, s->sum_count);
  out_done(&s->totalled);
}

AICORE bool reduce_next_task(reduction *s) {
  if (s->task >= 0 && s->a->totals) reduce_store_totals(s);
  s->task = s->task < 0 ? block_index() : s->task + block_count();
  if (s->task >= s->a->w.tasks) return false;
  s->b = walk_task(&s->a->w, s->task);
  s->row = -1;
  if (!s->a->totals) return true;
  out_begin(&s->totalled);
  duplicate(s->total, 0, 8);
  return true;
}

/* Adds the sums of the tile's rows to the task's totals, where the call wants any. */
AICORE void reduce_add_totals(const reduction *s) {
  if (!s->a->totals) return;
  row_sums_kept(s->more, s->work, s->sums, (tile){s->sum_count, s->rows, s->words});
  add(s->total, s->total, s->more, s->sum_count);
}

AICORE gm_ptr reduce_words(const reduction *s) { return s->a->words + s->row * s->word_count * 4; }
AICORE void reduce_load_words(reduction *s, ub_f32 to) {
  in_begin(&s->packed);
  load_f32(ring_now(&s->packed), reduce_words(s), 1, s->word_count * s->rows);
  in_ready(&s->packed);
  v_gather_f32(to, ring_now(&s->packed), s->order, s->word_count * s->words);
  sync_pipe(PIPE_V);
  in_done(&s->packed);
}
/* Once a row, where the call wants them. */
AICORE void reduce_store_words(reduction *s, ub_f32 from) {
  if (!s->a->words || s->b.col > 0) return;
  out_begin(&s->packed);
  v_gather_f32(ring_now(&s->packed), from, s->order, s->word_count * s->words);
  sync_pipe(PIPE_V);
  out_ready(&s->packed);
  store_f32(reduce_words(s), ring_now(&s->packed), 1, s->word_count * s->rows);
  out_done(&s->packed);
}

AICORE void reduce_load(reduction *s, tile t, int64_t c) {
  in_begin(&s->in);
  for (int i = 0; i < s->inputs; ++i)
    load_tile(s->a->dtype, ub_at_f32(ring_now(&s->in), i * s->elements), &s->a->space, &s->a->in[i], t, s->row, c);
  in_ready(&s->in);
}

/* The next tile of the task's rows. */
AICORE bool reduce_next_rows(reduction *s) {
  const walk *w = &s->a->w;
  if (s->row >= 0 && w->cached) in_done(&s->in);
  s->row = s->row < 0 ? s->b.row : s->row + w->tile_rows;
  if (s->row >= s->b.row_end) return false;
  s->rows = least(w->tile_rows, s->b.row_end - s->row);
  s->col = -1;
  if (w->cached) reduce_load(s, tile_of(s->a->dtype, s->rows, w->cols), 0);
  return true;
}

/* The next chunk of the tile's columns. */
AICORE bool reduce_next_chunk(reduction *s) {
  const reduce_arguments *a = s->a;
  if (s->col >= 0 && !a->w.cached) in_done(&s->in);
  s->col = s->col < 0 ? s->b.col : s->col + a->w.tile_cols;
  if (s->col >= s->b.col_end) {
    s->col = -1;
    return false;
  }
  s->t = tile_of(a->dtype, s->rows, least(a->w.tile_cols, s->b.col_end - s->col));
  s->n = s->t.rows * s->t.pitch;
  if (!a->w.cached) reduce_load(s, s->t, s->col);
  const ub_f32 raw = ub_at_f32(ring_now(&s->in), a->w.cached ? s->col * dtype_bytes(a->dtype) / 4 : 0);
  for (int i = 0; i < s->inputs; ++i)
    s->value[i] = values_of(a->dtype, s->wide[i], ub_at_f32(raw, i * s->elements), s->t);
  return true;
}

/* Where partial sum i of a row's first split is. */
AICORE gm_ptr reduce_partial(const reduction *s, int64_t i) {
  return s->a->partials + (i * s->a->w.rows + s->row) * s->a->w.splits * 4;
}

/* A chunk whose sums are wanted, in reduce_chunk_sum(). After the last one the tile has its sums, or has handed them over. */
AICORE bool reduce_next_sums(reduction *s) {
  const bool here = s->a->parts & PART_SUMS, more = s->col > s->b.col;
  if (s->col < 0) out_begin(&s->given);
  for (int i = 0; i < s->sum_count && more; ++i) {
    v_add_f32(reduce_sum(s, i), reduce_sum(s, i), reduce_chunk_sum(s, i), s->rows);
    sync_pipe(PIPE_V);
  }
  if (here && reduce_next_chunk(s)) return true;
  for (int i = 0; i < s->sum_count && !here; ++i)
    join_splits(reduce_sum(s, i), &s->arrival, reduce_partial(s, i), s->a->w.splits);
  out_ready(&s->given);
  for (int i = 0; i < s->sum_count && !(s->a->parts & PART_ROWS); ++i)
    store_f32(reduce_partial(s, i) + s->b.split * 4, reduce_sum(s, i), 1, 1);
  out_done(&s->given);
  return false;
}

AICORE void reduce_store(reduction *s) {
  const int64_t dtype = s->a->dtype;
  if (dtype != TIGON_F32) narrow(dtype, ring_now(&s->out), s->result, s->n);
  out_ready(&s->out);
  store_tile(dtype, &s->a->space, &s->a->out, ring_now(&s->out), s->t, s->row, s->col);
  out_done(&s->out);
}

/* A chunk whose output is wanted, in `result`; none where the rows' sums are handed over. */
AICORE bool reduce_next_out(reduction *s) {
  if (!(s->a->parts & PART_ROWS)) return false;
  if (s->col >= 0) reduce_store(s);
  if (!reduce_next_chunk(s)) return false;
  out_begin(&s->out);
  s->result = s->a->dtype == TIGON_F32 ? ring_now(&s->out) : s->wide[0];
  return true;
}

#endif
