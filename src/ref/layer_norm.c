/* layer_norm, as its header writes it. */
#include "ref/norm.h"

tigon_status tigon_ref_layer_norm_fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p) {
  (void)queue;
  const double cols = (double)p->cols;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    double sum = 0, squares = 0;
    for (int64_t c = 0; c < p->cols; ++c) sum += tigon_ref_at(&p->space, &p->x, p->dtype, r, c);
    const double mean = sum / cols;
    for (int64_t c = 0; c < p->cols; ++c) {
      const double d = tigon_ref_at(&p->space, &p->x, p->dtype, r, c) - mean;
      squares += d * d;
    }
    const double rstd = 1.0 / sqrt(squares / cols + (double)p->eps);
    if (p->mean) p->mean[r] = (float)mean;
    if (p->rstd) p->rstd[r] = (float)rstd;
    for (int64_t c = 0; c < p->cols; ++c) {
      const double xhat = (tigon_ref_at(&p->space, &p->x, p->dtype, r, c) - mean) * rstd;
      const double w = p->w ? tigon_load_f64(p->w, c, p->w_dtype) : 1,
                   b = p->b ? tigon_load_f64(p->b, c, p->b_dtype) : 0;
      tigon_ref_put(&p->space, &p->y, p->dtype, r, c, xhat * w + b);
    }
  }
  return TIGON_OK;
}

static double xhat_at(const tigon_norm_bwd_problem *p, int64_t r, int64_t c) {
  return (tigon_ref_at(&p->space, &p->x, p->dtype, r, c) - (double)p->mean[r]) * (double)p->rstd[r];
}

/* dw and db first: dx may be dy or x. */
tigon_status tigon_ref_layer_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  (void)queue;
  for (int64_t c = 0; (p->dw || p->db) && c < p->cols; ++c) {
    double dw = 0, db = 0;
    for (int64_t r = 0; r < p->space.rows; ++r) {
      const double dy = tigon_ref_at(&p->space, &p->dy, p->dtype, r, c);
      dw += dy * xhat_at(p, r, c);
      db += dy;
    }
    tigon_ref_put_sum(p->dw, p->dw_dtype, c, dw, p->accumulate_dw);
    tigon_ref_put_sum(p->db, p->db_dtype, c, db, p->accumulate_dw);
  }
  for (int64_t r = 0; r < p->space.rows; ++r) {
    double sum = 0, dot = 0;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t c = 0; c < p->cols; ++c) {
        const double g =
            tigon_ref_at(&p->space, &p->dy, p->dtype, r, c) * (p->w ? tigon_load_f64(p->w, c, p->w_dtype) : 1);
        const double xhat = xhat_at(p, r, c), cols = (double)p->cols;
        if (pass == 0)
          sum += g, dot += g * xhat;
        else
          tigon_ref_put(&p->space, &p->dx, p->dtype, r, c, (double)p->rstd[r] * (g - sum / cols - xhat * (dot / cols)));
      }
  }
  return TIGON_OK;
}
