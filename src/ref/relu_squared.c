/* relu_squared, as its header writes it. */
#include "ref/ref.h"

/* A NaN is not below 0 and passes. */
static double relu(double x) { return x < 0 ? 0 : x; }

tigon_status tigon_ref_relu_squared_fwd(tigon_queue *queue, const tigon_relu_squared_fwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r)
    for (int64_t c = 0; c < p->cols; ++c) {
      const double x = relu(tigon_ref_at(&p->space, &p->x, p->dtype, r, c));
      tigon_ref_put(&p->space, &p->y, p->dtype, r, c, x * x);
    }
  return TIGON_OK;
}

tigon_status tigon_ref_relu_squared_bwd(tigon_queue *queue, const tigon_relu_squared_bwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r)
    for (int64_t c = 0; c < p->cols; ++c) {
      const double dy = tigon_ref_at(&p->space, &p->dy, p->dtype, r, c);
      const double x = relu(tigon_ref_at(&p->space, &p->x, p->dtype, r, c));
      tigon_ref_put(&p->space, &p->dx, p->dtype, r, c, 2 * x * dy);
    }
  return TIGON_OK;
}
