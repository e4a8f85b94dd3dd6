#include <math.h>

#include "core/half.h"
#include "cpu/column_sum.h"
#include "cpu/norm.h"

enum { POLY_SUMS = TIGON_POLY + 1 }; /* of a row: what multiplies each power; dy */

typedef struct poly_job {
  const tigon_poly_norm_problem *p;
  int64_t ranges; /* of rows, a task each */
  bool stream;
} poly_job;

/* A row's factors. Forward y = f_3 x^3 + f_2 x^2 + f_1 x + b, and f_p is a slope; backward
 * dx = sum over p of slope_p * x^(p-1) * (dy - x^p * back_p). */
typedef struct poly_row {
  vf2 slope[TIGON_POLY], back[TIGON_POLY], b;
} poly_row;

/* A NaN is one that bf16 can hold. */
static inline vf2 all_of(double v) { return v2_set(isnan(v) ? NAN : (float)v); }
static inline double weight_of(tigon_vector w, int64_t i) { return w.data ? tigon_load_f64(w.data, i, w.dtype) : 0; }

/* A row's sums, f32 within a block of columns: of x^2p, highest power first; backward, where dy is not NULL, of dy * x^p and dy. */
TIGON_INLINE void poly_sum(tigon_dtype dtype, const char *x, const char *dy, int64_t cols, double to[POLY_SUMS]) {
  for (int i = 0; i < POLY_SUMS; ++i) to[i] = 0;
  for (int64_t block = 0; block < cols; block += NORM_BLOCK) {
    const int64_t end = cols - block < NORM_BLOCK ? cols : block + NORM_BLOCK;
    vf2 sums[POLY_SUMS] = {v2_set(0), v2_set(0), v2_set(0), v2_set(0)};
    for (int64_t c = block; c < end; c += STEP) {
      const int n = end - c < STEP ? (int)(end - c) : STEP;
      const vf2 v = v2_load(x, c, dtype, n), u = dy ? v2_load(dy, c, dtype, n) : v2_set(0);
      const vf2 square = v2_mul(v, v), cube = v2_mul(square, v);
      sums[0] = v2_fma(dy ? u : cube, cube, sums[0]);
      sums[1] = v2_fma(dy ? u : square, square, sums[1]);
      sums[2] = v2_fma(dy ? u : v, v, sums[2]);
      sums[3] = v2_add(u, sums[3]);
    }
    for (int i = 0; i < POLY_SUMS; ++i) to[i] += (double)vf_sum(vf_add(sums[i].a, sums[i].b));
  }
}

/* The factors of row r from its sums; backward adds the row's terms of dw and db to `all`. */
TIGON_INLINE poly_row poly_factors(const tigon_poly_norm_problem *p, bool backward, int64_t r,
                                   const double sums[POLY_SUMS], double all[POLY_SUMS]) {
  poly_row row = {.b = all_of(weight_of(p->b, 0))};
  for (int i = 0; i < TIGON_POLY; ++i) {
    const int64_t at = TIGON_POLY * r + i;
    double rstd;
    if (backward) {
      rstd = (double)p->rstd[at];
    } else {
      rstd = 1 / sqrt(sums[i] / (double)p->cols + (double)p->eps);
      if (p->rstd) p->rstd[at] = (float)rstd;
    }
    const double dot = sums[i] * rstd;
    row.slope[i] = all_of(weight_of(p->w, i) * (backward ? TIGON_POLY - i : 1) * rstd);
    row.back[i] = all_of(dot / (double)p->cols * rstd);
    all[i] += dot;
  }
  all[3] += sums[3];
  return row;
}

TIGON_INLINE vf2 poly_y(const poly_row *f, vf2 x) {
  return v2_fma(v2_fma(v2_fma(f->slope[0], x, f->slope[1]), x, f->slope[2]), x, f->b);
}
TIGON_INLINE vf2 poly_dx(const poly_row *f, vf2 x, vf2 dy) {
  const vf2 square = v2_mul(x, x);
  const vf2 third = v2_mul(f->slope[0], v2_fnma(v2_mul(square, x), f->back[0], dy));
  const vf2 second = v2_mul(f->slope[1], v2_fnma(square, f->back[1], dy));
  const vf2 first = v2_mul(f->slope[2], v2_fnma(x, f->back[2], dy));
  return v2_fma(v2_fma(third, x, second), x, first);
}

TIGON_INLINE void poly_rows(tigon_dtype dtype, bool backward, const poly_job *j, int64_t index) {
  const tigon_poly_norm_problem *p = j->p;
  const size_t size = tigon_dtype_size(dtype);
  double all[POLY_SUMS] = {0}, sums[POLY_SUMS];
  int64_t begin, end;
  tigon_range(p->space.rows, j->ranges, index, &begin, &end);
  for (int64_t r = begin; r < end; ++r) {
    const char *x = tigon_row(&p->space, &p->x, size, r), *dy = tigon_row(&p->space, &p->dy, size, r);
    const char *next = tigon_row(&p->space, &p->x, size, r + 1 < end ? r + 1 : r);
    char *out = tigon_row(&p->space, &p->out, size, r);
    const bool stream = j->stream && v2_aligned(out);
    poly_sum(dtype, x, backward ? dy : NULL, p->cols, sums);
    const poly_row row = poly_factors(p, backward, r, sums, all);
    for (int64_t c = 0; c < p->cols; c += STEP) {
      const int n = p->cols - c < STEP ? (int)(p->cols - c) : STEP;
      v2_prefetch(next, c, dtype);
      const vf2 v = v2_load(x, c, dtype, n);
      const vf2 of = backward ? poly_dx(&row, v, v2_load(dy, c, dtype, n)) : poly_y(&row, v);
      v2_put(out, c, dtype, of, n, stream, V_OWN);
    }
  }
  for (int i = 0; p->sums && i < POLY_SUMS; ++i) ((double *)p->sums)[POLY_SUMS * index + i] = all[i];
  if (j->stream) vf_fence();
}

static void fwd_task(const void *job, int64_t index) {
  const poly_job *j = job;
  TIGON_FOR_DTYPE(j->p->dtype, poly_rows, false, j, index);
}
static void bwd_task(const void *job, int64_t index) {
  const poly_job *j = job;
  TIGON_FOR_DTYPE(j->p->dtype, poly_rows, true, j, index);
}

tigon_status TIGON_CPU(poly_norm_fwd)(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  const int64_t row = 2 * p->cols * v_size(p->dtype), tasks = tigon_cpu_row_tasks(p->space.rows, row);
  const poly_job j = {p, tasks, tigon_cpu_streams(p->space.rows * row)};
  tigon_cpu_parallel(queue, tasks, fwd_task, &j);
  return TIGON_OK;
}

static int64_t ranges_of(const tigon_poly_norm_problem *p) { return tigon_slabs(p->space.rows, TIGON_CPU_TASKS); }

int64_t TIGON_CPU(poly_norm_bwd_bytes)(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  (void)queue;
  return tigon_pad(ranges_of(p) * POLY_SUMS * (int64_t)sizeof(double));
}

tigon_status TIGON_CPU(poly_norm_bwd)(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  const int64_t bytes = 3 * p->space.rows * p->cols * v_size(p->dtype);
  const poly_job j = {p, ranges_of(p), tigon_cpu_streams(bytes)};
  tigon_cpu_note(queue, 1, p->sums ? j.ranges : 0);
  tigon_cpu_parallel_bytes(queue, j.ranges, bytes, bwd_task, &j);
  for (int i = 0; i < TIGON_POLY; ++i) column_sum_one(queue, p->dw, i, p->sums, j.ranges, i, POLY_SUMS, p->accumulate);
  column_sum_one(queue, p->db, 0, p->sums, j.ranges, TIGON_POLY, POLY_SUMS, p->accumulate);
  return TIGON_OK;
}
