/* geglu, as its header writes it, but for (1 + tanh u) / 2 and (1 + erf z) / 2, which cancel: they are sigma(2 u) and
 * erfc(-z) / 2. */
#include "ref/ref.h"

static const double root_2_over_pi = 0.79788456080286535588, root_half = 0.70710678118654752440;

static double sigma(double y) { return 1 / (1 + tigon_ref_exp(-y)); }
/* erfc without errno: 2 and 0 in double beyond these. */
static double quiet_erfc(double z) { return z > 26 ? 0 : z < -6 ? 2 : erfc(z); }

/* gelu, and *slope. */
static double gelu(tigon_gelu approx, double a, double *slope) {
  if (approx == TIGON_GELU_ERF) {
    const double phi = quiet_erfc(-a * root_half) / 2;
    *slope = phi + a * (tigon_ref_exp(-a * a / 2) * root_2_over_pi / 2);
    return a * phi;
  }
  const double y = 2 * root_2_over_pi * (a + 0.044715 * a * a * a);
  *slope = sigma(y) + a * (sigma(y) * sigma(-y) * 2 * root_2_over_pi * (1 + 3 * 0.044715 * a * a));
  return a * sigma(y);
}

tigon_status tigon_ref_geglu_fwd(tigon_queue *queue, const tigon_geglu_fwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r)
    for (int64_t c = 0; c < p->cols; ++c) {
      double slope;
      const double value = gelu(p->approx, tigon_ref_at(&p->space, &p->a, p->dtype, r, c), &slope);
      tigon_ref_put(&p->space, &p->c, p->dtype, r, c, value * tigon_ref_at(&p->space, &p->b, p->dtype, r, c));
    }
  return TIGON_OK;
}

tigon_status tigon_ref_geglu_bwd(tigon_queue *queue, const tigon_geglu_bwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r)
    for (int64_t c = 0; c < p->cols; ++c) {
      const double dc = tigon_ref_at(&p->space, &p->dc, p->dtype, r, c);
      const double b = tigon_ref_at(&p->space, &p->b, p->dtype, r, c);
      double slope;
      const double value = gelu(p->approx, tigon_ref_at(&p->space, &p->a, p->dtype, r, c), &slope);
      tigon_ref_put(&p->space, &p->da, p->dtype, r, c, dc * b * slope);
      tigon_ref_put(&p->space, &p->db, p->dtype, r, c, dc * value);
    }
  return TIGON_OK;
}
