/* linear, as its header writes it. */
#include "ref/ref.h"

tigon_status tigon_ref_linear_fwd(tigon_queue *queue, const tigon_linear_fwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->rows; ++r)
    for (int64_t n = 0; n < p->n; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < p->k; ++k)
        sum += tigon_load_f64(p->x, r * p->x_pitch + k, p->dtype) * tigon_load_f64(p->w, n * p->w_pitch + k, p->dtype);
      if (p->b) sum += tigon_load_f64(p->b, n, p->b_dtype);
      tigon_store_f64(p->y, r * p->y_pitch + n, p->y_dtype, sum);
    }
  return TIGON_OK;
}

static void weight_gradient(const tigon_linear_bwd_problem *p, int64_t n) {
  for (int64_t k = 0; k < p->k; ++k) {
    double sum = 0;
    for (int64_t r = 0; r < p->rows; ++r)
      sum +=
          tigon_load_f64(p->dy, r * p->dy_pitch + n, p->dy_dtype) * tigon_load_f64(p->x, r * p->x_pitch + k, p->dtype);
    if (p->dw_sums) sum += (double)p->dw_sums[n * p->k + k];
    const int64_t at = n * p->dw_pitch + k;
    if (p->accumulate) sum += tigon_load_f64(p->dw, at, p->dw_dtype);
    tigon_store_f64(p->dw, at, p->dw_dtype, sum);
  }
}

static void bias_gradient(const tigon_linear_bwd_problem *p, int64_t n) {
  double sum = 0;
  for (int64_t r = 0; r < p->rows; ++r) sum += tigon_load_f64(p->dy, r * p->dy_pitch + n, p->dy_dtype);
  if (p->db_sums) sum += (double)p->db_sums[n];
  if (p->accumulate) sum += tigon_load_f64(p->db, n, p->db_dtype);
  tigon_store_f64(p->db, n, p->db_dtype, sum);
}

static void input_gradient(const tigon_linear_bwd_problem *p, int64_t r) {
  for (int64_t k = 0; k < p->k; ++k) {
    double sum = 0;
    for (int64_t n = 0; n < p->n; ++n)
      sum +=
          tigon_load_f64(p->dy, r * p->dy_pitch + n, p->dy_dtype) * tigon_load_f64(p->w, n * p->w_pitch + k, p->dtype);
    const int64_t at = r * p->dx_pitch + k;
    if (p->accumulate_dx) sum += tigon_load_f64(p->dx, at, p->dx_dtype);
    tigon_store_f64(p->dx, at, p->dx_dtype, sum);
  }
}

tigon_status tigon_ref_linear_bwd(tigon_queue *queue, const tigon_linear_bwd_problem *p) {
  (void)queue;
  for (int64_t n = 0; p->dw && n < p->n; ++n) weight_gradient(p, n);
  for (int64_t n = 0; p->db && n < p->n; ++n) bias_gradient(p, n);
  for (int64_t r = 0; p->dx && r < p->rows; ++r) input_gradient(p, r);
  return TIGON_OK;
}
