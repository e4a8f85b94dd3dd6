/* rms_norm and fused_add_rms_norm, as their headers write them. */
#include "ref/norm.h"

/* silu(z) of an element; 1 without a gate. */
static double gate(const tigon_row_space *space, const tigon_rows *z, tigon_dtype dtype, int64_t r, int64_t c) {
  return z->data ? tigon_ref_silu(tigon_ref_at(space, z, dtype, r, c)) : 1;
}

/* y of an element of `in`, the normalised input. */
static double y_at(const tigon_norm_fwd_problem *p, const tigon_rows *in, int64_t r, int64_t c, double rstd) {
  const double xhat = tigon_ref_xhat(tigon_ref_at(&p->space, in, p->dtype, r, c) * rstd, p->casting, p->dtype);
  const double n = xhat * tigon_ref_weight(p->w, p->w_dtype, c, (double)p->w_offset);
  return n * gate(&p->space, &p->z, p->dtype, r, c);
}

static void forward_row(const tigon_rms_norm_fwd_problem *p, const tigon_rows *in, int64_t r) {
  const double rstd = tigon_ref_rstd(p, in, r);
  if (p->rstd) p->rstd[r] = (float)rstd;
  for (int64_t c = 0; c < p->cols; ++c) tigon_ref_put(&p->space, &p->y, p->dtype, r, c, y_at(p, in, r, c, rstd));
}

tigon_status tigon_ref_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) forward_row(p, &p->x, r);
  return TIGON_OK;
}

tigon_status tigon_ref_fused_add_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    for (int64_t c = 0; c < p->cols; ++c)
      tigon_ref_put(&p->space, &p->s, p->dtype, r, c,
                    tigon_ref_at(&p->space, &p->x, p->dtype, r, c) +
                        tigon_ref_at(&p->space, &p->residual, p->dtype, r, c));
    forward_row(p, &p->s, r);
  }
  return TIGON_OK;
}

/* A NaN stays the largest. */
static void quantise_row(const tigon_rms_norm_quantised_problem *p, int64_t r) {
  const double rstd = tigon_ref_rstd(p, &p->x, r);
  double largest = 0;
  for (int64_t c = 0; c < p->cols; ++c) {
    const double y = fabs(y_at(p, &p->x, r, c, rstd));
    largest = isnan(largest) || y <= largest ? largest : y;
  }
  const double scale = largest / (p->q_dtype == TIGON_I8 ? 127 : 448);
  p->q_scale[r] = scale < 0x1p-126 ? 1 : (float)scale;
  for (int64_t c = 0; c < p->cols; ++c)
    tigon_ref_put(&p->space, &p->q, p->q_dtype, r, c, y_at(p, &p->x, r, c, rstd) / (double)p->q_scale[r]);
}

tigon_status tigon_ref_rms_norm_quantised(tigon_queue *queue, const tigon_rms_norm_quantised_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) quantise_row(p, r);
  return TIGON_OK;
}

/* The gradient of n, from dy. */
static double dn(const tigon_rms_norm_bwd_problem *p, int64_t r, int64_t c) {
  return tigon_ref_at(&p->space, &p->dy, p->dtype, r, c) * gate(&p->space, &p->z, p->dtype, r, c);
}

static double weight(const tigon_rms_norm_bwd_problem *p, int64_t c) {
  return tigon_ref_weight(p->w, p->w_dtype, c, (double)p->w_offset);
}

/* dw first: dx and dz may be dy, x or z. */
tigon_status tigon_ref_rms_norm_bwd(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p) {
  (void)queue;
  for (int64_t c = 0; p->dw && c < p->cols; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < p->space.rows; ++r)
      sum += dn(p, r, c) *
             tigon_ref_xhat(tigon_ref_at(&p->space, &p->x, p->dtype, r, c) * (double)p->rstd[r], p->casting, p->dtype);
    tigon_ref_put_sum(p->dw, p->dw_dtype, c, sum, p->accumulate_dw);
  }
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const double rstd = (double)p->rstd[r];
    double sum = 0;
    for (int64_t c = 0; c < p->cols; ++c)
      sum += dn(p, r, c) * weight(p, c) * tigon_ref_at(&p->space, &p->x, p->dtype, r, c) * rstd;
    const double mean = sum / (double)p->cols;
    for (int64_t c = 0; c < p->cols; ++c) {
      const double g = dn(p, r, c) * weight(p, c);
      const double xhat = tigon_ref_at(&p->space, &p->x, p->dtype, r, c) * rstd;
      const double ds = p->ds.data ? tigon_ref_at(&p->space, &p->ds, p->dtype, r, c) : 0;
      if (p->dz.data) {
        const double n = tigon_ref_xhat(xhat, p->casting, p->dtype) * weight(p, c);
        const double dy = tigon_ref_at(&p->space, &p->dy, p->dtype, r, c);
        const double slope = tigon_ref_silu_slope(tigon_ref_at(&p->space, &p->z, p->dtype, r, c));
        tigon_ref_put(&p->space, &p->dz, p->dtype, r, c, dy * n * slope);
      }
      tigon_ref_put(&p->space, &p->dx, p->dtype, r, c, rstd * (g - xhat * mean) + ds);
    }
  }
  return TIGON_OK;
}

tigon_status tigon_ref_fused_add_rms_norm_bwd(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p) {
  return tigon_ref_rms_norm_bwd(queue, p);
}
