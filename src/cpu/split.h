/* Few huge rows, each shared by several tasks. What is summed up along a row is summed over its parts, and the parts'
 * sums are joined in index order, whether one task has all parts or many. Parts are a function of the row's length alone: a
 * row has the same bits alone, in a batch, and on any number of threads. */
#ifndef TIGON_CPU_SPLIT_H
#define TIGON_CPU_SPLIT_H

#include "cpu/cpu.h"

enum {
  SPLIT_UNIT = 8192,             /* columns: a part begins on a multiple, which no block or panel of a kernel crosses */
  SPLIT_PARTS = TIGON_CPU_TASKS, /* the most parts of a row */
  SPLIT_CELLS = SPLIT_PARTS * TIGON_CPU_TASKS, /* parts of all rows that are split, on the caller's stack */
  SPLIT_BYTES = 6 * TIGON_CPU_THREAD_BYTES,    /* that a row moves: less is done sooner than a second region begins */
};

typedef struct split {
  int64_t cols, width, parts; /* columns of a row; width of a part; parts of a row */
  int64_t tasks;              /* that share a row, each a range of its parts; 1: a task has whole rows */
} split;

/* Columns, or parts, [begin, end). */
typedef struct split_range {
  int64_t begin, end;
} split_range;

/* May rows of `bytes` each be split? On some number of threads they then are. */
static inline bool split_may(int64_t rows, int64_t bytes) { return rows < TIGON_CPU_TASKS && bytes >= SPLIT_BYTES; }

/* Rows are split where whole ones would leave threads idle. */
static inline split split_of(const tigon_queue *queue, int64_t rows, int64_t cols, int64_t bytes) {
  const int64_t most = (int64_t)SPLIT_UNIT * SPLIT_PARTS, width = ((cols - 1) / most + 1) * SPLIT_UNIT;
  split s = {cols, width, (cols - 1) / width + 1, 1};
  if (rows == 0 || rows % queue->threads == 0 || !split_may(rows, bytes)) return s;
  const int64_t share = rows > TIGON_CPU_TASKS / 2 ? 2 : TIGON_CPU_TASKS / rows;
  s.tasks = share < s.parts ? share : s.parts;
  return s;
}

/* The parts of a row's task `index`, below `tasks`. */
static inline split_range split_parts(const split *s, int64_t index) {
  split_range r;
  tigon_range(s->parts, s->tasks, index, &r.begin, &r.end);
  return r;
}

/* The columns of parts. */
static inline split_range split_columns(const split *s, split_range parts) {
  return (split_range){parts.begin * s->width, parts.end < s->parts ? parts.end * s->width : s->cols};
}
static inline split_range split_part(const split *s, int64_t part) {
  return split_columns(s, (split_range){part, part + 1});
}
/* The columns of task `index` of several rows', index / tasks being the row. */
static inline split_range split_share(const split *s, int64_t index) {
  return split_columns(s, split_parts(s, index % s->tasks));
}

#endif
