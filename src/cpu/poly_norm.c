#include <math.h>

#include "cpu/column_sum.h"
#include "cpu/reduce.h"

enum { POLY_SUMS = TIGON_POLY + 1 }; /* sums for dw and db */

/* x^2p, the highest power first. */
TIGON_INLINE void add_squares(vf2 x, vf2 none, vf2 *sums) {
  (void)none;
  const vf2 square = v2_mul(x, x), cube = v2_mul(square, x);
  sums[0] = v2_fma(cube, cube, sums[0]);
  sums[1] = v2_fma(square, square, sums[1]);
  sums[2] = v2_fma(x, x, sums[2]);
}
/* The factors of y = f_3 x^3 + f_2 x^2 + f_1 x + b, and b. */
TIGON_INLINE void find_factors(const void *problem, int64_t r, double *sums, double *factor) {
  const tigon_poly_norm_problem *p = problem;
  for (int i = 0; i < TIGON_POLY; ++i) {
    const double rstd = 1 / sqrt(sums[i] / (double)p->cols + (double)p->eps);
    if (p->rstd) p->rstd[TIGON_POLY * r + i] = (float)rstd;
    factor[i] = vector_at(p->w, i) * rstd;
  }
  factor[TIGON_POLY] = vector_at(p->b, 0);
}
TIGON_INLINE vf2 find_y(const vf2 *f, vf2 x, vf2 none) {
  (void)none;
  return v2_fma(v2_fma(v2_fma(f[0], x, f[1]), x, f[2]), x, f[3]);
}
REDUCE_TASK(fwd_task, 1, TIGON_POLY, TIGON_POLY + 1, add_squares, find_factors, find_y)

/* dy * x^p, and dy. */
TIGON_INLINE void add_products(vf2 x, vf2 dy, vf2 *sums) {
  const vf2 square = v2_mul(x, x);
  sums[0] = v2_fma(dy, v2_mul(square, x), sums[0]);
  sums[1] = v2_fma(dy, square, sums[1]);
  sums[2] = v2_fma(dy, x, sums[2]);
  sums[3] = v2_add(dy, sums[3]);
}
/* The slopes of dx = sum over p of slope_p * x^(p-1) * (dy - x^p * back_p), then each back_p. */
TIGON_INLINE void find_slopes(const void *problem, int64_t r, double *sums, double *slope) {
  const tigon_poly_norm_problem *p = problem;
  for (int i = 0; i < TIGON_POLY; ++i) {
    const double rstd = (double)p->rstd[TIGON_POLY * r + i];
    sums[i] *= rstd;
    slope[i] = vector_at(p->w, i) * (TIGON_POLY - i) * rstd;
    slope[TIGON_POLY + i] = sums[i] / (double)p->cols * rstd;
  }
}
TIGON_INLINE vf2 find_dx(const vf2 *f, vf2 x, vf2 dy) {
  const vf2 square = v2_mul(x, x);
  const vf2 third = v2_mul(f[0], v2_fnma(v2_mul(square, x), f[3], dy));
  const vf2 second = v2_mul(f[1], v2_fnma(square, f[4], dy));
  const vf2 first = v2_mul(f[2], v2_fnma(x, f[5], dy));
  return v2_fma(v2_fma(third, x, second), x, first);
}
REDUCE_TASK(bwd_task, 2, POLY_SUMS, 2 * TIGON_POLY, add_products, find_slopes, find_dx)

tigon_status TIGON_CPU(poly_norm_fwd)(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  reduce_job j = reduce_of(p, &p->space, &p->x, NULL, &p->out, p->cols, p->dtype);
  return reduce_run(queue, &j, fwd_task);
}

int64_t TIGON_CPU(poly_norm_bwd_bytes)(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  (void)queue;
  return reduce_totals_bytes(&p->space, POLY_SUMS);
}

tigon_status TIGON_CPU(poly_norm_bwd)(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  reduce_job j = reduce_of(p, &p->space, &p->x, &p->dy, &p->out, p->cols, p->dtype);
  j.ranges = reduce_ranges(&p->space);
  j.totals = p->sums;
  reduce_run(queue, &j, bwd_task);
  for (int i = 0; i < TIGON_POLY; ++i) column_sum_one(queue, p->dw, i, p->sums, j.ranges, i, POLY_SUMS, p->accumulate);
  column_sum_one(queue, p->db, 0, p->sums, j.ranges, TIGON_POLY, POLY_SUMS, p->accumulate);
  return TIGON_OK;
}
