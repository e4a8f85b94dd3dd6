/* modulated_rms_norm, as its header writes it. */
#include "ref/norm.h"

tigon_status tigon_ref_modulated_rms_norm_fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const double rstd = tigon_ref_rstd(p, &p->x, r);
    if (p->rstd) p->rstd[r] = (float)rstd;
    for (int64_t c = 0; c < p->cols; ++c) {
      const double xhat = tigon_ref_xhat(tigon_ref_at(&p->space, &p->x, p->dtype, r, c) * rstd, p->casting, p->dtype);
      const double n = xhat * tigon_ref_weight(p->w, p->w_dtype, c, (double)p->w_offset);
      const double scale = tigon_ref_at(&p->groups, &p->scale, p->scale_dtype, r / p->share, c);
      const double shift = p->shift.data ? tigon_ref_at(&p->groups, &p->shift, p->shift_dtype, r / p->share, c) : 0;
      tigon_ref_put(&p->space, &p->y, p->dtype, r, c, (1 + scale) * n + shift);
    }
  }
  return TIGON_OK;
}

/* dw, dscale and dshift first: dx may be dy or x. */
static void sums(const tigon_norm_bwd_problem *p, int64_t c) {
  double dw = 0;
  for (int64_t group = 0; group < p->groups.rows; ++group) {
    const double w = tigon_ref_weight(p->w, p->w_dtype, c, (double)p->w_offset);
    const double scale = tigon_ref_at(&p->groups, &p->scale, p->scale_dtype, group, c);
    double dscale = 0, dshift = 0;
    for (int64_t r = group * p->share; r < (group + 1) * p->share; ++r) {
      const double dy = tigon_ref_at(&p->space, &p->dy, p->dtype, r, c);
      const double xhat =
          tigon_ref_xhat(tigon_ref_at(&p->space, &p->x, p->dtype, r, c) * (double)p->rstd[r], p->casting, p->dtype);
      dw += dy * (1 + scale) * xhat;
      dscale += dy * xhat * w;
      dshift += dy;
    }
    tigon_ref_put_sum(p->dscale.data, p->dscale_dtype, tigon_row_offset(&p->groups, &p->dscale, group) + c, dscale,
                      p->accumulate_dscale);
    tigon_ref_put_sum(p->dshift.data, p->dshift_dtype, tigon_row_offset(&p->groups, &p->dshift, group) + c, dshift,
                      p->accumulate_dscale);
  }
  tigon_ref_put_sum(p->dw, p->dw_dtype, c, dw, p->accumulate_dw);
}

tigon_status tigon_ref_modulated_rms_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  (void)queue;
  for (int64_t c = 0; c < p->cols; ++c) sums(p, c);
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const double rstd = (double)p->rstd[r];
    double mean = 0;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t c = 0; c < p->cols; ++c) {
        const double g = tigon_ref_at(&p->space, &p->dy, p->dtype, r, c) *
                         (1 + tigon_ref_at(&p->groups, &p->scale, p->scale_dtype, r / p->share, c)) *
                         tigon_ref_weight(p->w, p->w_dtype, c, (double)p->w_offset);
        const double xhat = tigon_ref_at(&p->space, &p->x, p->dtype, r, c) * rstd;
        if (pass == 0)
          mean += g * xhat / (double)p->cols;
        else
          tigon_ref_put(&p->space, &p->dx, p->dtype, r, c, rstd * (g - xhat * mean));
      }
  }
  return TIGON_OK;
}
