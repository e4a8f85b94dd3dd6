/* embedding backward: row v of dtable is the sum of the rows of dy whose index is v, in the order of the positions. A task has a
 * range of table rows to itself, so nothing is added by two cores. It looks through all indices: once to count each row's positions,
 * and once to list them by row, as many as fit; then each row is summed panel by panel. Rows without a position become zeros. */
#include "ascend/kernel/embedding.h"

#include "ascend/kernel/scalar.h"

enum {
  LEVELS = 3, /* a sum is handed on to the next level after SPAN of them: no partial sum is far longer than its terms */
  SPAN = 16,
};

typedef struct state {
  const embedding_bwd_arguments *a;
  int64_t panel, capacity, batch, zero_words;
  ub_f32 counts;  /* i32 for each table row of the task: its positions; later the end of them in the list */
  ub_f32 list;    /* i32 positions, sorted by table row */
  ub_f32 indices; /* a batch */
  ub_f32 zeros;
  ring in, before, out;
  ub_f32 wide; /* f32 tile, with 16-bit dtypes alone */
  ub_f32 level[LEVELS];
  int64_t added[LEVELS]; /* in each level */
  bool out_of_range;
} state;

typedef struct range {
  int64_t begin, end;
} range;

/* ---- indices ---- */

AICORE int64_t load_batch(const state *s, int64_t first) {
  const int64_t words = index_words(s->a->idx_dtype), n = least(s->batch, s->a->positions - first);
  loads_after_scalar();
  load_f32(s->indices, s->a->idx + first * words * 4, 1, n * words);
  scalar_after_loads();
  return n;
}

AICORE int64_t count_of(const state *s, int64_t i) { return s_read_i32(s->counts, i); }

/* counts = the positions of each table row of the task; returns how many they are. */
AICORE int64_t count_positions(state *s, range task) {
  const embedding_bwd_arguments *a = s->a;
  int64_t found = 0;
  vectors_after_scalar();
  v_duplicate_f32(s->counts, 0, task.end - task.begin);
  scalar_after_vectors();
  for (int64_t first = 0; first < a->positions; first += s->batch) {
    const int64_t n = load_batch(s, first);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t v = s_read_index(a->idx_dtype, s->indices, i);
      if (v < 0 || v >= a->vocab) s->out_of_range = true;
      if (v < task.begin || v >= task.end || v == a->padding_idx) continue;
      s_write_i32(s->counts, v - task.begin, (int32_t)count_of(s, v - task.begin) + 1);
      ++found;
    }
  }
  return found;
}

/* The positions of table rows [rows.begin, rows.end) into the list; counts become ends. */
AICORE void list_positions(const state *s, range task, range rows) {
  const embedding_bwd_arguments *a = s->a;
  int64_t sum = 0;
  for (int64_t v = rows.begin; v < rows.end; ++v) {
    const int64_t n = count_of(s, v - task.begin);
    s_write_i32(s->counts, v - task.begin, (int32_t)sum);
    sum += n;
  }
  for (int64_t first = 0; first < a->positions && sum > 0; first += s->batch) {
    const int64_t n = load_batch(s, first);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t v = s_read_index(a->idx_dtype, s->indices, i);
      if (v < rows.begin || v >= rows.end || v == a->padding_idx) continue;
      const int64_t at = count_of(s, v - task.begin);
      s_write_i32(s->list, at, (int32_t)(first + i));
      s_write_i32(s->counts, v - task.begin, (int32_t)at + 1);
    }
  }
}

/* ---- sums ---- */

/* level[l] += x, and what is full goes on. */
AICORE void add_to_level(state *s, ub_f32 x, int64_t n) {
  for (int l = 0; l < LEVELS; ++l) {
    if (s->added[l] == 0)
      v_mul_scalar_f32(s->level[l], x, 1, n);
    else
      v_add_f32(s->level[l], s->level[l], x, n);
    sync_pipe(PIPE_V);
    if (++s->added[l] < SPAN || l == LEVELS - 1) return;
    s->added[l] = 0;
    x = s->level[l];
  }
}

/* Rows of the positions list[at.begin .. at.end), columns [c, c + n). */
AICORE void add_positions(state *s, range at, int64_t c, int64_t n) {
  const embedding_bwd_arguments *a = s->a;
  const int64_t size = dtype_bytes(a->dtype);
  for (int64_t i = at.begin; i < at.end; i += a->together) {
    const tile t = tile_of(a->dtype, least(a->together, at.end - i), n);
    in_begin(&s->in);
    for (int64_t k = 0; k < t.rows; ++k)
      load(a->dtype, ub_at_f32(ring_now(&s->in), k * t.pitch * size / 4),
           row_at(&a->space, &a->dy, size, s_read_i32(s->list, i + k), c), 1, n);
    in_ready(&s->in);
    const ub_f32 x = values_of(a->dtype, s->wide, ring_now(&s->in), t);
    fold_rows(x, t);
    add_to_level(s, x, n);
    in_done(&s->in);
  }
}

/* The levels' sum to table row v, onto what is there when asked. */
AICORE void store_sum(state *s, int64_t v, int64_t c, int64_t n) {
  const embedding_bwd_arguments *a = s->a;
  const int64_t dtype = a->dtable_dtype, size = dtype_bytes(dtype);
  const gm_ptr to = a->dtable + (v * a->cols + c) * size;
  const ub_f32 out = ring_now(&s->out);
  int top = LEVELS - 1;
  while (top > 0 && s->added[top] == 0) --top;
  const ub_f32 sum = s->level[top];
  for (int l = top - 1; l >= 0; --l) {
    if (s->added[l] > 0) v_add_f32(sum, sum, s->level[l], n);
    sync_pipe(PIPE_V);
  }
  for (int l = 0; l < LEVELS; ++l) s->added[l] = 0;
  out_begin(&s->out);
  if (a->accumulate) {
    in_begin(&s->before);
    load(dtype, s->before.start, to, 1, n);
    in_ready(&s->before);
    if (dtype != TIGON_F32) widen(dtype, out, s->before.start, n);
    v_add_f32(sum, sum, dtype == TIGON_F32 ? s->before.start : out, n);
    sync_pipe(PIPE_V);
    in_done(&s->before);
  }
  if (dtype == TIGON_F32)
    v_mul_scalar_f32(out, sum, 1, n);
  else
    narrow(dtype, out, sum, n);
  sync_pipe(PIPE_V);
  out_ready(&s->out);
  store(dtype, to, out, 1, n);
  out_done(&s->out);
}

AICORE void sum_row(state *s, int64_t v, range at) {
  for (int64_t c = 0; c < s->a->cols; c += s->panel) {
    const int64_t n = least(s->panel, s->a->cols - c);
    add_positions(s, at, c, n);
    store_sum(s, v, c, n);
  }
}

/* A table row with more positions than the list holds: they are looked for again for each panel. */
AICORE void sum_long_row(state *s, int64_t v) {
  const embedding_bwd_arguments *a = s->a;
  for (int64_t c = 0; c < a->cols; c += s->panel) {
    const int64_t n = least(s->panel, a->cols - c);
    int64_t listed = 0;
    for (int64_t first = 0; first < a->positions; first += s->batch) {
      const int64_t count = load_batch(s, first);
      for (int64_t i = 0; i < count; ++i) {
        if (s_read_index(a->idx_dtype, s->indices, i) != v) continue;
        s_write_i32(s->list, listed++, (int32_t)(first + i));
        if (listed < s->capacity) continue;
        add_positions(s, (range){0, listed}, c, n);
        listed = 0;
      }
    }
    add_positions(s, (range){0, listed}, c, n);
    store_sum(s, v, c, n);
  }
}

AICORE void store_zeros(const state *s, range rows) {
  const embedding_bwd_arguments *a = s->a;
  const int64_t size = dtype_bytes(a->dtable_dtype), most = s->zero_words * 4 / size, end = rows.end * a->cols;
  for (int64_t i = rows.begin * a->cols; i < end && !a->accumulate; i += most)
    store(a->dtable_dtype, a->dtable + i * size, s->zeros, 1, least(most, end - i));
}

/* ---- the walk ---- */

AICORE void sum_rows(state *s, range task) {
  for (range rows = {task.begin, task.begin}; rows.begin < task.end; rows.begin = rows.end) {
    int64_t sum = 0, at = 0, n;
    while (rows.end < task.end &&
           (n = count_of(s, rows.end - task.begin), rows.end == rows.begin || sum + n <= s->capacity))
      sum += n, ++rows.end;
    if (sum > s->capacity) {
      sum_long_row(s, rows.begin);
      continue;
    }
    list_positions(s, task, rows);
    int64_t zeros = rows.begin;
    for (int64_t v = rows.begin; v < rows.end; ++v) {
      const int64_t end = count_of(s, v - task.begin);
      if (end == at) continue;
      store_zeros(s, (range){zeros, v});
      sum_row(s, v, (range){at, end});
      zeros = v + 1;
      at = end;
    }
    store_zeros(s, (range){zeros, rows.end});
  }
}

AICORE state open_state(ub_arena *ub, const embedding_bwd_arguments *a) {
  state s = {.a = a, .panel = a->panel, .capacity = a->listed, .batch = a->listed / 4, .zero_words = a->listed};
  s.counts = ub_alloc_f32(ub, a->listed);
  s.list = ub_alloc_f32(ub, s.capacity);
  s.indices = ub_alloc_f32(ub, s.batch * index_words(a->idx_dtype));
  s.zeros = ub_alloc_f32(ub, s.zero_words);
  s.in = ring_of(ub, 0, 2, a->together * s.panel * dtype_bytes(a->dtype));
  s.before = ring_of(ub, 2, 1, a->accumulate ? s.panel * dtype_bytes(a->dtable_dtype) : 0);
  s.out = ring_of(ub, 0, 2, s.panel * 4);
  s.wide = ub_alloc_f32(ub, a->dtype == TIGON_F32 ? 0 : a->together * s.panel);
  for (int l = 0; l < LEVELS; ++l) s.level[l] = ub_alloc_f32(ub, s.panel);
  v_duplicate_f32(s.zeros, 0, s.zero_words);
  sync_set(PIPE_V, PIPE_MTE3, 2);
  sync_wait(PIPE_V, PIPE_MTE3, 2);
  in_open(&s.in);
  in_open(&s.before);
  out_open(&s.out);
  return s;
}

AICORE_KERNEL(embedding_bwd, embedding_bwd_arguments) {
  const ub_f32 error = ub_alloc_f32(ub, 8);
  state s = open_state(ub, a);
  for (int64_t t = block_index(); t < a->tasks; t += block_count()) {
    const range task = {range_begin(a->vocab, a->tasks, t), range_begin(a->vocab, a->tasks, t + 1)};
    if (count_positions(&s, task) > 0)
      sum_rows(&s, task);
    else
      store_zeros(&s, task);
  }
  in_close(&s.in);
  in_close(&s.before);
  out_close(&s.out);
  if (!s.out_of_range || !a->error || block_index() > 0) return; /* every block has seen all indices */
  s_write_i32(error, 0, 1);
  stores_after_scalar();
  store_f32(a->error, error, 1, 1);
}
