/* The engine of rows that are read twice: for sums over their columns, and for an output of each element and its row's sums. An
 * operator's file has its formulas for two vectors of each input. Sums are f32 within a block of columns and f64 across blocks. */
#ifndef TIGON_CPU_REDUCE_H
#define TIGON_CPU_REDUCE_H

#include <math.h>

#include "cpu/kernels.h"
#include "cpu/pair.h"
#include "cpu/split.h"

enum {
  REDUCE_BLOCK = 256 * LANES, /* columns of one f32 partial sum: at most 128 additions in a row */
  REDUCE_SUMS = 4,            /* the most sums of a row */
  REDUCE_NUMBERS = 6,         /* the most further numbers of a row that an output needs */
};

/* Constant once a body is expanded. With one input `b` is 0. */
typedef struct reduce {
  int inputs, sums, numbers;
  /* Adds the terms of elements to the sums of their row. */
  void (*add)(vf2 a, vf2 b, vf2 sums[REDUCE_SUMS]);
  /* Makes a row's numbers of its sums, in whose place it leaves what the row adds to the totals. */
  void (*row)(const void *problem, int64_t row, double sums[REDUCE_SUMS], double numbers[REDUCE_NUMBERS]);
  vf2 (*out)(const vf2 numbers[REDUCE_NUMBERS], vf2 a, vf2 b);
} reduce;

typedef struct reduce_job {
  const void *problem;
  const tigon_row_space *space;
  const tigon_rows *in[2], *out;
  int64_t cols;
  tigon_dtype dtype;
  split cut;      /* cut of a row, which several tasks may share */
  int64_t ranges; /* ranges of rows, one task each if no row is shared */
  double *totals; /* [ranges, sums], of the rows of each; NULL: not wanted */
  /* Set by reduce_run(). */
  double *cells; /* [rows, cut.parts, sums] where tasks share rows, else NULL */
  bool sums_there, stream;
} reduce_job;

/* ---- a row ---- */

TIGON_INLINE vf2 reduce_second(const reduce *m, tigon_dtype dtype, const char *b, int64_t c, int n) {
  return m->inputs > 1 ? v2_load(b, c, dtype, n) : v2_set(0);
}

/* The sums of columns `at`. */
TIGON_INLINE void reduce_part(const reduce *m, tigon_dtype dtype, const char *a, const char *b, split_range at,
                              double *to) {
  for (int i = 0; i < m->sums; ++i) to[i] = 0;
  for (int64_t block = at.begin; block < at.end; block += REDUCE_BLOCK) {
    const int64_t end = at.end - block < REDUCE_BLOCK ? at.end : block + REDUCE_BLOCK;
    vf2 sums[REDUCE_SUMS] = {v2_set(0), v2_set(0), v2_set(0), v2_set(0)};
    int64_t c = block;
    for (; c + STEP <= end; c += STEP) m->add(v2_load(a, c, dtype, STEP), reduce_second(m, dtype, b, c, STEP), sums);
    const int n = (int)(end - c);
    if (n > 0) m->add(v2_load(a, c, dtype, n), reduce_second(m, dtype, b, c, n), sums);
    for (int i = 0; i < m->sums; ++i) to[i] += (double)vf_sum(vf_add(sums[i].a, sums[i].b));
  }
}

/* The output of columns `at`; next: the inputs of the row that is read after this one. */
TIGON_INLINE void reduce_store(const reduce *m, tigon_dtype dtype, const char *a, const char *b, const char *next[2],
                               char *out, split_range at, const vf2 numbers[REDUCE_NUMBERS], bool stream) {
  int64_t c = at.begin;
  for (; c + STEP <= at.end; c += STEP) {
    for (int i = 0; i < m->inputs; ++i) v2_prefetch(next[i], c, dtype);
    const vf2 of = m->out(numbers, v2_load(a, c, dtype, STEP), reduce_second(m, dtype, b, c, STEP));
    v2_put(out, c, dtype, of, STEP, stream, V_OWN);
  }
  const int n = (int)(at.end - c);
  if (n == 0) return;
  v2_put(out, c, dtype, m->out(numbers, v2_load(a, c, dtype, n), reduce_second(m, dtype, b, c, n)), n, false, V_OWN);
}

/* ---- calls ---- */

/* Task `index`: a range of rows, or some parts of one. */
TIGON_INLINE void reduce_rows(tigon_dtype dtype, const reduce *m, const reduce_job *j, int64_t index) {
  const size_t size = tigon_dtype_size(dtype);
  const split_range parts = split_parts(&j->cut, index % j->cut.tasks);
  double own[SPLIT_PARTS * REDUCE_SUMS] = {0}, totals[REDUCE_SUMS] = {0};
  int64_t begin = index / j->cut.tasks, end = begin + 1;
  if (!j->cells) tigon_range(j->space->rows, j->ranges, index, &begin, &end);
  for (int64_t r = begin; r < end; ++r) {
    const char *row[2] = {NULL}, *next[2] = {NULL};
    for (int i = 0; i < m->inputs; ++i) {
      row[i] = tigon_row(j->space, j->in[i], size, r);
      next[i] = tigon_row(j->space, j->in[i], size, r + 1 < end ? r + 1 : r);
    }
    double *cells = j->cells ? j->cells + r * j->cut.parts * m->sums : own, sums[REDUCE_SUMS] = {0};
    if (!j->sums_there)
      for (int64_t k = parts.begin; k < parts.end; ++k)
        reduce_part(m, dtype, row[0], row[1], split_part(&j->cut, k), cells + k * m->sums);
    if (j->cells && !j->sums_there) continue;
    for (int64_t k = 0; k < j->cut.parts * m->sums; ++k) sums[k % m->sums] += cells[k];
    double made[REDUCE_NUMBERS];
    vf2 numbers[REDUCE_NUMBERS];
    m->row(j->problem, r, sums, made);
    for (int i = 0; i < m->numbers; ++i) numbers[i] = v2_set(isnan(made[i]) ? NAN : (float)made[i]);
    for (int i = 0; i < m->sums; ++i) totals[i] += sums[i];
    char *out = tigon_row(j->space, j->out, size, r);
    reduce_store(m, dtype, row[0], row[1], next, out, split_columns(&j->cut, parts), numbers,
                 j->stream && v2_aligned(out));
  }
  for (int i = 0; i < m->sums && j->totals; ++i) j->totals[index * m->sums + i] = totals[i];
  if (j->stream) vf_fence();
}

static inline int64_t reduce_row_bytes(const reduce_job *j) { return (j->in[1] ? 3 : 2) * j->cols * v_size(j->dtype); }

/* Rows whose totals are wanted: their ranges, and the bytes of the totals. */
static inline int64_t reduce_ranges(const tigon_row_space *space) { return tigon_slabs(space->rows, TIGON_CPU_TASKS); }
static inline int64_t reduce_totals_bytes(const tigon_row_space *space, int sums) {
  return tigon_pad(reduce_ranges(space) * sums * (int64_t)sizeof(double));
}

/* Independent rows, none of them split; `b` may be NULL. */
static inline reduce_job reduce_of(const void *problem, const tigon_row_space *space, const tigon_rows *a,
                                   const tigon_rows *b, const tigon_rows *out, int64_t cols, tigon_dtype dtype) {
  reduce_job j = {.problem = problem,
                  .space = space,
                  .in = {a, b},
                  .out = out,
                  .cols = cols,
                  .dtype = dtype,
                  .cut = {cols, cols, 1, 1}};
  j.ranges = tigon_cpu_row_tasks(space->rows, reduce_row_bytes(&j));
  return j;
}

static inline tigon_status reduce_run(tigon_queue *queue, reduce_job *j, void (*task)(const void *job, int64_t index)) {
  double cells[SPLIT_CELLS * REDUCE_SUMS];
  const int64_t rows = j->space->rows, bytes = rows * reduce_row_bytes(j);
  j->stream = tigon_cpu_streams(bytes);
  tigon_cpu_note(queue, j->cut.tasks, j->totals ? j->ranges : 0);
  if (j->cut.tasks == 1) {
    tigon_cpu_parallel_bytes(queue, j->ranges, bytes, task, j);
    return TIGON_OK;
  }
  j->cells = cells;
  tigon_cpu_parallel(queue, rows * j->cut.tasks, task, j);
  j->sums_there = true;
  tigon_cpu_parallel(queue, rows * j->cut.tasks, task, j);
  return TIGON_OK;
}

/* A task of reduce_run() with a `reduce` of these members. */
#define REDUCE_TASK(name, ...)                            \
  static void name(const void *job, int64_t index) {      \
    const reduce m = {__VA_ARGS__};                       \
    const reduce_job *j = job;                            \
    TIGON_FOR_DTYPE(j->dtype, reduce_rows, &m, j, index); \
  }

#endif
