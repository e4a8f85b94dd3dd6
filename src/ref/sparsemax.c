#include <math.h>

#include "ref/ref.h"

/* tau of row r of x - base. A NaN counts, and makes it one. */
static double threshold(const tigon_sparsemax_problem *p, int64_t r, double base) {
  for (double tau = -1;;) {
    double sum = 0, count = 0;
    for (int64_t c = 0; c < p->cols; ++c) {
      const double z = tigon_ref_at(&p->space, &p->x, p->dtype, r, c) - base;
      if (!(z <= tau)) sum += z, ++count;
    }
    const double next = count > 0 ? (sum - 1) / count : tau;
    if (next <= tau) return tau;
    tau = next;
    if (isnan(tau)) return tau;
  }
}

tigon_status tigon_ref_sparsemax_fwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    double base = -(double)INFINITY;
    for (int64_t c = 0; c < p->cols; ++c) base = fmax(base, tigon_ref_at(&p->space, &p->x, p->dtype, r, c));
    if (base == -(double)INFINITY) base = 0; /* x is -inf everywhere, or NaN */
    const double tau = threshold(p, r, base);
    for (int64_t c = 0; c < p->cols; ++c) {
      const double y = tigon_ref_at(&p->space, &p->x, p->dtype, r, c) - base - tau;
      tigon_ref_put(&p->space, &p->y, p->dtype, r, c, y <= 0 ? 0 : y);
    }
  }
  return TIGON_OK;
}

tigon_status tigon_ref_sparsemax_bwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    double sum = 0, count = 0;
    for (int64_t c = 0; c < p->cols; ++c) {
      const double y = tigon_ref_at(&p->space, &p->y, p->dtype, r, c);
      if (!(y <= 0)) sum += tigon_ref_at(&p->space, &p->dy, p->dtype, r, c) + (y - y), ++count;
    }
    const double mean = count > 0 ? sum / count : 0;
    for (int64_t c = 0; c < p->cols; ++c) {
      const bool supported = !(tigon_ref_at(&p->space, &p->y, p->dtype, r, c) <= 0);
      const double dy = tigon_ref_at(&p->space, &p->dy, p->dtype, r, c);
      tigon_ref_put(&p->space, &p->dx, p->dtype, r, c, supported ? dy - mean : 0);
    }
  }
  return TIGON_OK;
}
