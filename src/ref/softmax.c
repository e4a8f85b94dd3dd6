#include <math.h>

#include "ref/ref.h"

/* Columns that row r sees. */
static int64_t seen(const tigon_softmax_fwd_problem *p, int64_t r) {
  const int64_t last = r % p->tokens + p->cols - p->tokens;
  return !p->causal || last >= p->cols ? p->cols : last + 1 > 0 ? last + 1 : 0;
}

static double logit(const tigon_softmax_fwd_problem *p, int64_t r, int64_t c) {
  const double z = (double)p->scale * tigon_ref_at(&p->space, &p->x, p->dtype, r, c);
  return p->mask.data ? z + tigon_ref_at(&p->space, &p->mask, p->mask_dtype, r, c) : z;
}

tigon_status tigon_ref_softmax_fwd(tigon_queue *queue, const tigon_softmax_fwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    const int64_t count = seen(p, r);
    double most = -(double)INFINITY, sum = 0;
    for (int64_t c = 0; c < count; ++c) most = fmax(most, logit(p, r, c));
    if (most == -(double)INFINITY) most = 0; /* nothing counts, or only NaN does */
    for (int64_t c = 0; c < count; ++c) sum += exp(logit(p, r, c) - most);
    for (int64_t c = 0; c < p->cols; ++c)
      tigon_ref_put(&p->space, &p->y, p->dtype, r, c, c < count && sum != 0 ? exp(logit(p, r, c) - most) / sum : 0);
  }
  return TIGON_OK;
}

tigon_status tigon_ref_softmax_bwd(tigon_queue *queue, const tigon_softmax_bwd_problem *p) {
  (void)queue;
  for (int64_t r = 0; r < p->space.rows; ++r) {
    double dot = 0;
    for (int64_t c = 0; c < p->cols; ++c)
      dot += tigon_ref_at(&p->space, &p->dy, p->dtype, r, c) * tigon_ref_at(&p->space, &p->y, p->dtype, r, c);
    for (int64_t c = 0; c < p->cols; ++c) {
      const double dy = tigon_ref_at(&p->space, &p->dy, p->dtype, r, c),
                   y = tigon_ref_at(&p->space, &p->y, p->dtype, r, c);
      tigon_ref_put(&p->space, &p->dx, p->dtype, r, c, (double)p->scale * y * (dy - dot));
    }
  }
  return TIGON_OK;
}
