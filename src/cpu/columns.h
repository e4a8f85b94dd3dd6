/* The engine for rows with vectors of columns and a number, whose gradients are sums over rows (problem/columns.h). An
 * operator's file has its formulas for one vector of each tensor. A task has a panel of columns of a range of rows. Backward
 * sums the vectors' gradients of a panel in the range's slab, and the number's in a double for each task; both are then added in
 * order. */
#ifndef TIGON_CPU_COLUMNS_H
#define TIGON_CPU_COLUMNS_H

#include "core/half.h"
#include "cpu/column_sum.h"
#include "cpu/norm.h"
#include "cpu/simd_math.h"

/* What a formula makes its vector of. Forward: x in `b`. Backward: dy and x in `a` and `b`. */
typedef struct columns_in {
  tigon_dtype dtype;
  vf a, b, number, vector[2];
} columns_in;
/* Sums of gradients, to which backward's formula adds its terms: the vectors', the number's. */
typedef struct columns_sums {
  vf vector[2], number;
} columns_sums;

/* Constant in a sweep: y, or dx. */
typedef struct columns_map {
  vf (*forward)(columns_in in);
  vf (*backward)(columns_in in, columns_sums *sums);
} columns_map;

typedef struct columns_job {
  const tigon_columns_problem *p;
  int64_t ranges, panels; /* ranges of rows; panels of columns, NORM_PANEL each */
  double *numbers;        /* [ranges, panels]; NULL: no sums are wanted */
  bool stream;
} columns_job;

/* Rows that share a sweep. Forward has x and no dy, and no slab. */
typedef struct columns_group {
  const char *dy[NORM_GROUP], *x[NORM_GROUP], *next_dy[NORM_GROUP], *next_x[NORM_GROUP];
  char *out[NORM_GROUP];
  float *slab[2];
  bool stream;
} columns_group;

/* ---- a group of rows ---- */

TIGON_INLINE void columns_step(const columns_map *m, tigon_dtype dtype, int rows, const columns_group *g, vf number,
                               const norm_panel *panel, int64_t i, int n, vf2 *total) {
  const int64_t c = panel[0].first + i;
  const vf2 first = norm_weight(panel[0].w, i), second = m->forward ? norm_weight(panel[1].w, i) : v2_set(0);
  columns_sums sums[2] = {{{vf_zero(), vf_zero()}, total->a}, {{vf_zero(), vf_zero()}, total->b}};
  for (int k = 0; k < 2 && m->backward && g->slab[0]; ++k) {
    const vf2 so_far = v2_order(v2_load(g->slab[k], c, TIGON_F32, n), dtype);
    sums[0].vector[k] = so_far.a, sums[1].vector[k] = so_far.b;
  }
  for (int r = 0; r < rows; ++r) {
    v2_prefetch(g->next_x[r], c, dtype);
    if (m->backward) v2_prefetch(g->next_dy[r], c, dtype);
    const vf2 dy = m->backward ? v2_load(g->dy[r], c, dtype, n) : v2_set(0), x = v2_load(g->x[r], c, dtype, n);
    const columns_in a = {dtype, dy.a, x.a, number, {first.a, second.a}},
                     b = {dtype, dy.b, x.b, number, {first.b, second.b}};
    const vf2 out =
        m->backward ? (vf2){m->backward(a, &sums[0]), m->backward(b, &sums[1])} : (vf2){m->forward(a), m->forward(b)};
    v2_put(g->out[r], c, dtype, out, n, g->stream, V_RARE);
  }
  for (int k = 0; k < 2 && m->backward && g->slab[0]; ++k)
    v2_put(g->slab[k], c, TIGON_F32, v2_natural((vf2){sums[0].vector[k], sums[1].vector[k]}, dtype), n, false, V_OWN);
  *total = (vf2){sums[0].number, sums[1].number};
}
/* The rest of a row: a formula may make anything of the lanes beyond it. */
TIGON_INLINE vf2 columns_rest(const columns_map *m, tigon_dtype dtype, int rows, const columns_group *g, vf number,
                              const norm_panel *panel, int64_t i, int n) {
  float lanes[STEP];
  vf2 total = v2_set(0);
  columns_step(m, dtype, rows, g, number, panel, i, n, &total);
  v2_put(lanes, 0, TIGON_F32, v2_natural(total, dtype), n, false, V_OWN);
  return v2_load(lanes, 0, TIGON_F32, n);
}

/* A panel of `rows` rows; returns the sum for the number, f32 within a block of columns. */
TIGON_INLINE double columns_sweep(const columns_map *m, tigon_dtype dtype, int rows, const columns_group *at, vf number,
                                  const norm_panel *panel) {
  enum { COLUMNS_BLOCK = NORM_BLOCK / NORM_GROUP };
  const columns_group g = *at;
  const int64_t cols = panel[0].cols;
  double sum = 0;
  for (int64_t block = 0; block < cols; block += COLUMNS_BLOCK) {
    const int64_t end = cols - block < COLUMNS_BLOCK ? cols : block + COLUMNS_BLOCK;
    vf2 total = v2_set(0);
    int64_t c = block;
    for (; c + STEP <= end; c += STEP) columns_step(m, dtype, rows, &g, number, panel, c, STEP, &total);
    if (c < end) total = v2_add(total, columns_rest(m, dtype, rows, &g, number, panel, c, (int)(end - c)));
    if (m->backward) sum += (double)vf_sum(vf_add(total.a, total.b));
  }
  return sum;
}

/* ---- tasks ---- */

TIGON_INLINE void columns_load(const columns_job *j, tigon_dtype dtype, int64_t first, int which, norm_panel *panel) {
  const tigon_vector v = j->p->vector[which];
  const norm_weights weights = {.w = v.data, .dtype = v.dtype};
  panel->cols = 0;
  norm_load_panel(panel, first, j->p->cols, dtype, &weights);
}

TIGON_INLINE void columns_rows(tigon_dtype dtype, const columns_map *m, const columns_job *j, int64_t index) {
  const tigon_columns_problem *p = j->p;
  const size_t size = tigon_dtype_size(dtype);
  const tigon_rows *const x = &p->in[m->backward != NULL], *const dy = &p->in[0];
  const double given = vector_at(p->number, 0);
  const vf number = vf_set(isnan(given) ? NAN : (float)given); /* a NaN that bf16 can hold */
  const int64_t first = index % j->panels * NORM_PANEL, range = index / j->panels;
  norm_panel panel[2];
  double sum = 0;
  int64_t begin, end;
  tigon_range(p->space.rows, j->ranges, range, &begin, &end);
  columns_load(j, dtype, first, 0, &panel[0]);
  if (!m->backward) columns_load(j, dtype, first, 1, &panel[1]);
  columns_group g = {0};
  for (int k = 0; k < 2 && j->numbers; ++k) {
    g.slab[k] = p->slabs + (2 * range + k) * p->cols;
    memset(g.slab[k] + first, 0, (size_t)panel[0].cols * sizeof *g.slab[k]);
  }
  const int most = m->backward ? NORM_GROUP : 1;
  for (int64_t r = begin; r < end; r += most) {
    const int rows = end - r < most ? (int)(end - r) : most;
    g.stream = j->stream;
    for (int i = 0; i < rows; ++i) {
      const int64_t next = r + i + rows < end ? r + i + rows : r + i;
      g.x[i] = tigon_row(&p->space, x, size, r + i);
      g.next_x[i] = tigon_row(&p->space, x, size, next);
      g.dy[i] = tigon_row(&p->space, dy, size, r + i);
      g.next_dy[i] = tigon_row(&p->space, dy, size, next);
      g.out[i] = tigon_row(&p->space, &p->out, size, r + i);
      g.stream = g.stream && v2_aligned(g.out[i]);
    }
    sum += rows == most ? columns_sweep(m, dtype, most, &g, number, panel)
                        : columns_sweep(m, dtype, rows, &g, number, panel);
  }
  if (j->numbers) j->numbers[index] = sum;
  if (j->stream) vf_fence();
}

/* ---- calls ---- */

static inline int64_t columns_panels(const tigon_columns_problem *p) { return (p->cols + NORM_PANEL - 1) / NORM_PANEL; }
static inline int64_t columns_ranges(const tigon_columns_problem *p) {
  return tigon_slabs(p->space.rows, TIGON_CPU_TASKS);
}

static inline tigon_status columns_fwd(tigon_queue *queue, const tigon_columns_problem *p,
                                       void (*task)(const void *job, int64_t index)) {
  const int64_t size = v_size(p->dtype), wide = p->cols < NORM_PANEL ? p->cols : NORM_PANEL;
  const columns_job j = {.p = p,
                         .ranges = tigon_cpu_row_tasks(p->space.rows, 2 * wide * size),
                         .panels = columns_panels(p),
                         .stream = tigon_cpu_streams(2 * p->space.rows * p->cols * size)};
  tigon_cpu_parallel(queue, j.ranges * j.panels, task, &j);
  return TIGON_OK;
}

static inline int64_t columns_bytes(const tigon_columns_problem *p) {
  const int64_t tasks = columns_ranges(p) * columns_panels(p);
  return tigon_slab_bytes(columns_ranges(p), 2, p->cols) + tigon_pad(tasks * (int64_t)sizeof(double));
}

static inline tigon_status columns_bwd(tigon_queue *queue, const tigon_columns_problem *p,
                                       void (*task)(const void *job, int64_t index)) {
  const int64_t ranges = columns_ranges(p), bytes = 3 * p->space.rows * p->cols * v_size(p->dtype);
  const bool wanted = tigon_columns_sums(p);
  void *after = wanted && p->slabs ? (char *)p->slabs + tigon_slab_bytes(ranges, 2, p->cols) : NULL;
  const columns_job j = {p, ranges, columns_panels(p), after, tigon_cpu_streams(bytes)};
  tigon_cpu_note(queue, 1, wanted ? ranges : 0);
  tigon_cpu_parallel_bytes(queue, ranges * j.panels, bytes, task, &j);
  column_sum sums[2];
  for (int i = 0; i < 2; ++i)
    sums[i] = column_sum_of(p->slabs, ranges, i, 2, p->cols, p->dvector[i].data, p->dvector[i].dtype, p->accumulate);
  if (p->dvector[0].data || p->dvector[1].data) column_sum_list(queue, sums, 2);
  column_sum_one(queue, p->dnumber, 0, j.numbers, ranges * j.panels, 0, 1, p->accumulate);
  return TIGON_OK;
}

/* Makes an operator's slots of its two formulas. */
#define COLUMNS_SLOT(op, way, ...)                                                          \
  static void op##_##way##_task(const void *job, int64_t index) {                           \
    const columns_map map = {__VA_ARGS__};                                                  \
    const columns_job *j = job;                                                             \
    TIGON_FOR_DTYPE(j->p->dtype, columns_rows, &map, j, index);                             \
  }                                                                                         \
  tigon_status TIGON_CPU(op##_##way)(tigon_queue * queue, const tigon_columns_problem *p) { \
    return columns_##way(queue, p, op##_##way##_task);                                      \
  }
#define COLUMNS(op, forward_formula, backward_formula)                                     \
  COLUMNS_SLOT(op, fwd, .forward = forward_formula)                                        \
  COLUMNS_SLOT(op, bwd, .backward = backward_formula)                                      \
  int64_t TIGON_CPU(op##_bwd_bytes)(tigon_queue * queue, const tigon_columns_problem *p) { \
    (void)queue;                                                                           \
    return columns_bytes(p);                                                               \
  }

#endif
