/* dyt, as its header writes it. */
#include "ref/ref.h"

static double at(tigon_vector v, int64_t i) { return v.data ? tigon_load_f64(v.data, i, v.dtype) : 0; }
static void put(tigon_vector v, int64_t i, double value, bool accumulate) {
  if (v.data) tigon_store_f64(v.data, i, v.dtype, accumulate ? at(v, i) + value : value);
}

/* tanh(u) and *slope = 1 - tanh(u)^2. */
static double tanh_of(double u, double *slope) {
  const double e = tigon_ref_exp(-2 * fabs(u)), less = fabs(u) < 1 ? expm1(-2 * fabs(u)) : e - 1;
  *slope = 4 * e / ((1 + e) * (1 + e));
  return copysign(less / (1 + e), u);
}

tigon_status tigon_ref_dyt_fwd(tigon_queue *queue, const tigon_dyt_fwd_problem *p) {
  (void)queue;
  double slope;
  for (int64_t r = 0; r < p->space.rows; ++r)
    for (int64_t c = 0; c < p->cols; ++c) {
      const double u = at(p->number, 0) * tigon_ref_at(&p->space, &p->in[0], p->dtype, r, c);
      tigon_ref_put(&p->space, &p->out, p->dtype, r, c, at(p->vector[0], c) * tanh_of(u, &slope) + at(p->vector[1], c));
    }
  return TIGON_OK;
}

tigon_status tigon_ref_dyt_bwd(tigon_queue *queue, const tigon_dyt_bwd_problem *p) {
  (void)queue;
  const double alpha = at(p->number, 0);
  double dalpha = 0;
  for (int64_t c = 0; c < p->cols; ++c) {
    const double gamma = at(p->vector[0], c);
    double dgamma = 0, dbeta = 0;
    for (int64_t r = 0; r < p->space.rows; ++r) {
      const double dy = tigon_ref_at(&p->space, &p->in[0], p->dtype, r, c);
      const double x = tigon_ref_at(&p->space, &p->in[1], p->dtype, r, c);
      double slope;
      dgamma += dy * tanh_of(alpha * x, &slope);
      dbeta += dy;
      dalpha += dy * gamma * slope * x;
      tigon_ref_put(&p->space, &p->out, p->dtype, r, c, alpha * (dy * gamma * slope));
    }
    put(p->dvector[0], c, dgamma, p->accumulate);
    put(p->dvector[1], c, dbeta, p->accumulate);
  }
  put(p->dnumber, 0, dalpha, p->accumulate);
  return TIGON_OK;
}
