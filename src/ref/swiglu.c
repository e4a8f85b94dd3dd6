/* swiglu, as its header writes it. */
#include "ref/ref.h"

/* What the clamp lets through. A NaN is not greater than it and passes. */
static double clamp_gate(double a, double clamp) { return clamp > 0 && a > clamp ? clamp : a; }
static double clamp_up(double b, double clamp) {
  return clamp > 0 && b > clamp ? clamp : clamp > 0 && b < -clamp ? -clamp : b;
}

tigon_status tigon_ref_swiglu_fwd(tigon_queue *queue, const tigon_swiglu_fwd_problem *p) {
  (void)queue;
  const double gate = (double)p->gate_mult, down = (double)p->down_mult, clamp = (double)p->clamp;
  for (int64_t r = 0; r < p->space.rows; ++r)
    for (int64_t c = 0; c < p->cols; ++c) {
      const double u = gate * clamp_gate(tigon_ref_at(&p->space, &p->a, p->dtype, r, c), clamp);
      const double b = clamp_up(tigon_ref_at(&p->space, &p->b, p->dtype, r, c), clamp);
      tigon_ref_put(&p->space, &p->c, p->dtype, r, c, down * (u / (1 + tigon_ref_exp(-u))) * b);
    }
  return TIGON_OK;
}

tigon_status tigon_ref_swiglu_bwd(tigon_queue *queue, const tigon_swiglu_bwd_problem *p) {
  (void)queue;
  const double gate = (double)p->gate_mult, down = (double)p->down_mult, clamp = (double)p->clamp;
  for (int64_t r = 0; r < p->space.rows; ++r)
    for (int64_t c = 0; c < p->cols; ++c) {
      const double dc = tigon_ref_at(&p->space, &p->dc, p->dtype, r, c);
      const double a = tigon_ref_at(&p->space, &p->a, p->dtype, r, c),
                   b = tigon_ref_at(&p->space, &p->b, p->dtype, r, c);
      const double u = gate * clamp_gate(a, clamp), sigma = 1 / (1 + tigon_ref_exp(-u)),
                   rest = 1 / (1 + tigon_ref_exp(u)); /* 1 - sigma */
      const double da = dc * down * clamp_up(b, clamp) * gate * sigma * (1 + u * rest);
      const double db = dc * down * (u / (1 + tigon_ref_exp(-u)));
      tigon_ref_put(&p->space, &p->da, p->dtype, r, c, clamp > 0 && a > clamp ? 0 : da);
      tigon_ref_put(&p->space, &p->db, p->dtype, r, c, clamp > 0 && fabs(b) > clamp ? 0 : db);
    }
  return TIGON_OK;
}
