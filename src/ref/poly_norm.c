/* poly_norm, as its header writes it. */
#include <math.h>

#include "ref/ref.h"

static double power(double x, int p) { return p == 3 ? x * x * x : p == 2 ? x * x : p == 1 ? x : 1; }
static double at(const tigon_poly_norm_problem *p, const tigon_rows *t, int64_t r, int64_t c) {
  return tigon_ref_at(&p->space, t, p->dtype, r, c);
}

tigon_status tigon_ref_poly_norm_fwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    double factor[TIGON_POLY];
    for (int i = 0; i < TIGON_POLY; ++i) {
      double sum = 0;
      for (int64_t c = 0; c < p->cols; ++c) sum += power(power(at(p, &p->x, r, c), TIGON_POLY - i), 2);
      const double rstd = 1 / sqrt(sum / (double)p->cols + (double)p->eps);
      if (p->rstd) p->rstd[TIGON_POLY * r + i] = (float)rstd;
      factor[i] = tigon_ref_vector_at(p->w, i) * rstd;
    }
    for (int64_t c = 0; c < p->cols; ++c) {
      double y = tigon_ref_vector_at(p->b, 0);
      for (int i = 0; i < TIGON_POLY; ++i) y += factor[i] * power(at(p, &p->x, r, c), TIGON_POLY - i);
      tigon_ref_put(&p->space, &p->out, p->dtype, r, c, y);
    }
  }
  return TIGON_OK;
}

tigon_status tigon_ref_poly_norm_bwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  (void)queue;
  double dw[TIGON_POLY] = {0}, db = 0;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const float *rstd = p->rstd + TIGON_POLY * r;
    double dots[TIGON_POLY] = {0}; /* sums of dy and n(x^p) */
    for (int i = 0; i < TIGON_POLY; ++i) {
      for (int64_t c = 0; c < p->cols; ++c)
        dots[i] += at(p, &p->dy, r, c) * power(at(p, &p->x, r, c), TIGON_POLY - i) * (double)rstd[i];
      dw[i] += dots[i];
    }
    for (int64_t c = 0; c < p->cols; ++c) {
      const double dy = at(p, &p->dy, r, c), x = at(p, &p->x, r, c);
      double dx = 0;
      for (int i = 0; i < TIGON_POLY; ++i) {
        const int e = TIGON_POLY - i;
        const double scale = (double)rstd[i], mean = dots[i] / (double)p->cols;
        dx += tigon_ref_vector_at(p->w, i) * e * power(x, e - 1) * scale * (dy - power(x, e) * scale * mean);
      }
      db += dy;
      tigon_ref_put(&p->space, &p->out, p->dtype, r, c, dx);
    }
  }
  for (int i = 0; i < TIGON_POLY; ++i) tigon_ref_vector_put(p->dw, i, dw[i], p->accumulate);
  tigon_ref_vector_put(p->db, 0, db, p->accumulate);
  return TIGON_OK;
}
