/* dyt, as its header writes it. */
#include "ref/ref.h"

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
      const double u = tigon_ref_vector_at(p->number, 0) * tigon_ref_at(&p->space, &p->in[0], p->dtype, r, c);
      tigon_ref_put(&p->space, &p->out, p->dtype, r, c,
                    tigon_ref_vector_at(p->vector[0], c) * tanh_of(u, &slope) + tigon_ref_vector_at(p->vector[1], c));
    }
  return TIGON_OK;
}

tigon_status tigon_ref_dyt_bwd(tigon_queue *queue, const tigon_dyt_bwd_problem *p) {
  (void)queue;
  const double alpha = tigon_ref_vector_at(p->number, 0);
  double dalpha = 0;
  for (int64_t c = 0; c < p->cols; ++c) {
    const double gamma = tigon_ref_vector_at(p->vector[0], c);
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
    tigon_ref_vector_put(p->dvector[0], c, dgamma, p->accumulate);
    tigon_ref_vector_put(p->dvector[1], c, dbeta, p->accumulate);
  }
  tigon_ref_vector_put(p->dnumber, 0, dalpha, p->accumulate);
  return TIGON_OK;
}
