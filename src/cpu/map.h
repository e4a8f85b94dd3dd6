/* The engine of elementwise operators: an operator's file has its formula for one vector of each tensor, and a line for each slot.
 * The bits of an element do not depend on where it lies in a row or in a task. f32 takes the exact functions of simd_math.h,
 * 16-bit dtypes the cheaper ones, whose error is far below their rounding. */
#ifndef TIGON_CPU_MAP_H
#define TIGON_CPU_MAP_H

#include "cpu/kernels.h"
#include "cpu/pair.h"
#include "cpu/simd_math.h"

enum {
  PIECE = 16384,       /* elements of a task at least, a multiple of any line */
  PIECES = 64,         /* tasks of a call, before they get larger ... */
  LONGEST = 8 * PIECE, /* ... up to this many elements, where a thread streams as fast as it can */
  BLOCK = 512,         /* elements, a multiple of STEP, whose exponentials lie in the L1 */
  AHEAD = 4096,        /* bytes: the arithmetic is too long for the loads behind it to hide the memory's latency */
  NEAR = 1024,         /* bytes, beside an exponential */
};

/* A vector of each input, and with it what a formula may ask for. */
typedef struct map_in {
  vf a, b, c;
  vf early; /* what map.early made */
  const tigon_map_numbers *numbers;
  tigon_dtype dtype;
} map_in;

/* A vector of each output. */
typedef struct map_out {
  vf a, b;
} map_out;

/* Constant in a sweep. */
typedef struct map {
  int inputs, outputs;
  map_out (*formula)(map_in in);
  /* Or NULL. 16-bit dtypes: made of elements i .. i + n - 1 of input `source` for a whole block, before its formula. Long chains of
   * arithmetic, such as exponentials, overlap better there. */
  vf2 (*early)(const tigon_map_numbers *numbers, tigon_dtype dtype, const void *data, int64_t i, int n);
  int source;
} map;

/* One row's first elements in a task. */
typedef struct map_row {
  const void *in[3];
  void *out[2];
} map_row;

/* ---- a block of elements ---- */

TIGON_INLINE bool map_has_early(const map *m, tigon_dtype dtype) { return m->early && dtype != TIGON_F32; }

/* Loops beside an exponential are bound by arithmetic, and a line that has still to come from the L2 costs them time. */
TIGON_INLINE void prefetch_ahead(const void *data, int64_t i, tigon_dtype dtype, bool exp) {
  if (exp)
    vf_prefetch((const char *)data + i * v_size(dtype) + NEAR);
  else
    v2_prefetch((const char *)data + AHEAD, i, dtype);
}
TIGON_INLINE void map_early(const map *m, const tigon_map_numbers *k, tigon_dtype dtype, const void *data, int64_t i,
                            int64_t end, bool stream, float *early) {
  for (; i < end; i += STEP, early += STEP) {
    if (stream) prefetch_ahead(data, i, dtype, true);
    const vf2 v = m->early(k, dtype, data, i, end - i < STEP ? (int)(end - i) : STEP);
    vf_store(early, v.a);
    vf_store(early + LANES, v.b);
  }
}

/* Elements before `data` is aligned for streaming. */
TIGON_INLINE int64_t head_of(const void *data, tigon_dtype dtype, int64_t n) {
  const int64_t head = (int64_t)(-(uintptr_t)data % V_LINE) / v_size(dtype);
  return head < n ? head : n;
}

/* Input j; 0 where there is none. */
TIGON_INLINE vf2 map_load(const map *m, tigon_dtype dtype, const map_row *r, int j, int64_t i, int n, bool stream) {
  if (j >= m->inputs) return v2_set(0);
  const bool early = map_has_early(m, dtype);
  if (stream && !(early && j == m->source)) prefetch_ahead(r->in[j], i, dtype, early);
  return v2_load(r->in[j], i, dtype, n);
}

/* `early` is NULL where there is none. */
TIGON_INLINE void map_step(const map *m, const tigon_map_numbers *k, tigon_dtype dtype, const map_row *r, int64_t i,
                           int n, const float *early, bool stream) {
  const vf2 e = map_has_early(m, dtype) ? (vf2){vf_load(early), vf_load(early + LANES)} : v2_set(0);
  const vf2 a = map_load(m, dtype, r, 0, i, n, stream), b = map_load(m, dtype, r, 1, i, n, stream),
            c = map_load(m, dtype, r, 2, i, n, stream);
  const map_out p = m->formula((map_in){a.a, b.a, c.a, e.a, k, dtype}),
                q = m->formula((map_in){a.b, b.b, c.b, e.b, k, dtype});
  const v_values are = m->inputs == 1 ? V_OWN : V_RARE;
  v2_put(r->out[0], i, dtype, (vf2){p.a, q.a}, n, stream, are);
  if (m->outputs > 1) v2_put(r->out[1], i, dtype, (vf2){p.b, q.b}, n, stream, are);
}

TIGON_INLINE void map_block(const map *m, const tigon_map_numbers *k, tigon_dtype dtype, const map_row *r,
                            int64_t first, int64_t end, bool stream) {
  float early[BLOCK];
  if (map_has_early(m, dtype)) map_early(m, k, dtype, r->in[m->source], first, end, stream, early);
  int64_t i = first;
  for (; i + STEP <= end; i += STEP) map_step(m, k, dtype, r, i, STEP, early + (i - first), stream);
  if (i < end) map_step(m, k, dtype, r, i, (int)(end - i), early + (i - first), false);
}

TIGON_INLINE void map_sweep(const map *m, const tigon_map_numbers *k, tigon_dtype dtype, const map_row *r, int64_t n,
                            bool stream) {
  int64_t i = stream ? head_of(r->out[0], dtype, n) : 0;
  if (i > 0) map_block(m, k, dtype, r, 0, i, false);
  for (; i < n; i += BLOCK) map_block(m, k, dtype, r, i, n - i < BLOCK ? n : i + BLOCK, stream);
}

/* ---- tasks: a few rows each, or a range of columns of a long row ---- */

typedef struct map_pieces {
  int64_t rows, cols; /* the most rows and columns of a piece */
  int64_t across;     /* map_pieces side by side */
  int64_t tasks;
} map_pieces;

static inline map_pieces map_cut(int64_t rows, int64_t cols) {
  const int64_t fair = rows * cols / PIECES / PIECE * PIECE;
  const int64_t most = fair < PIECE ? PIECE : fair < LONGEST ? fair : LONGEST;
  map_pieces p = {.rows = cols < most ? most / cols : 1, .cols = cols < most ? cols : most};
  p.across = (cols + p.cols - 1) / p.cols;
  p.tasks = (rows + p.rows - 1) / p.rows * p.across;
  return p;
}

static inline tigon_box piece_at(const map_pieces *p, int64_t rows, int64_t cols, int64_t index) {
  tigon_box box = {.row_begin = index / p->across * p->rows, .col_begin = index % p->across * p->cols};
  box.row_end = rows - box.row_begin < p->rows ? rows : box.row_begin + p->rows;
  box.col_end = cols - box.col_begin < p->cols ? cols : box.col_begin + p->cols;
  return box;
}

/* ---- calls ---- */

typedef struct map_job {
  const tigon_map_problem *p;
  map_pieces pieces;
  bool stream;
} map_job;

TIGON_INLINE char *map_at(const tigon_map_problem *p, const tigon_rows *t, tigon_dtype dtype, int64_t row,
                          int64_t col) {
  return (char *)t->data + (tigon_row_offset(&p->space, t, row) + col) * v_size(dtype);
}

/* Both outputs have to be aligned for streaming at once. */
TIGON_INLINE bool map_streams(const map *m, const map_row *r) {
  return m->outputs == 1 || ((uintptr_t)r->out[0] - (uintptr_t)r->out[1]) % V_LINE == 0;
}

/* Task `index`. */
TIGON_INLINE void map_rows(tigon_dtype dtype, const map *m, const map_job *j, int64_t index) {
  const tigon_map_problem *p = j->p;
  const tigon_map_numbers k = p->numbers;
  const tigon_box box = piece_at(&j->pieces, p->space.rows, p->cols, index);
  const int64_t col = box.col_begin, n = box.col_end - col;
  for (int64_t row = box.row_begin; row < box.row_end; ++row) {
    map_row r = {0};
    for (int i = 0; i < m->inputs; ++i) r.in[i] = map_at(p, &p->in[i], dtype, row, col);
    for (int i = 0; i < m->outputs; ++i) r.out[i] = map_at(p, &p->out[i], dtype, row, col);
    if (j->stream && map_streams(m, &r))
      map_sweep(m, &k, dtype, &r, n, true);
    else
      map_sweep(m, &k, dtype, &r, n, false);
  }
  if (j->stream) vf_fence();
}

static inline tigon_status map_run(tigon_queue *queue, const tigon_map_problem *p,
                                   void (*task)(const void *job, int64_t index)) {
  const int64_t tensors = p->inputs + p->outputs;
  const float *factor = queue->record ? NULL : p->numbers.factor; /* a recorder is told of the call's work */
  if (factor && tigon_map_is_done(p, *factor)) return TIGON_OK;
  const map_job j = {.p = p,
                     .pieces = map_cut(p->space.rows, p->cols),
                     .stream =
                         tigon_cpu_streams(tensors * p->space.rows * p->cols * (int64_t)tigon_dtype_size(p->dtype))};
  tigon_cpu_parallel(queue, j.pieces.tasks, task, &j);
  return TIGON_OK;
}

/* Makes a slot of one map, or of two, of which p, the problem, chooses one. MAP_OF: inputs, outputs, formula, early, source. */
#define MAP_OF(...) ((map){__VA_ARGS__})
#define MAP_EITHER(slot, condition, first, second)                                \
  static void slot##_task(const void *job, int64_t index) {                       \
    const tigon_map_problem *p = ((const map_job *)job)->p;                       \
    const map one = first, other = second;                                        \
    if (condition)                                                                \
      TIGON_FOR_DTYPE(p->dtype, map_rows, &one, job, index);                      \
    else                                                                          \
      TIGON_FOR_DTYPE(p->dtype, map_rows, &other, job, index);                    \
  }                                                                               \
  tigon_status TIGON_CPU(slot)(tigon_queue * queue, const tigon_map_problem *p) { \
    return map_run(queue, p, slot##_task);                                        \
  }
#define MAP(slot, inputs, outputs, formula) \
  MAP_EITHER(slot, true, MAP_OF(inputs, outputs, formula, NULL, 0), MAP_OF(inputs, outputs, formula, NULL, 0))

#endif
