/* group_norm, as its header writes it. */
#include "ref/norm.h"

static double at(const tigon_planes *t, tigon_dtype dtype, int64_t b, int64_t c, int64_t i) {
  return tigon_load_f64(t->data, b * t->batch_pitch + c * t->channel_pitch + i, dtype);
}
static void put(const tigon_planes *t, tigon_dtype dtype, int64_t b, int64_t c, int64_t i, double value) {
  tigon_store_f64(t->data, b * t->batch_pitch + c * t->channel_pitch + i, dtype, value);
}
static double parameter(const void *data, tigon_dtype dtype, int64_t c, double absent) {
  return data ? tigon_load_f64(data, c, dtype) : absent;
}

static void forward_group(const tigon_group_norm_fwd_problem *p, int64_t b, int64_t g) {
  const int64_t first = g * p->channels, last = first + p->channels;
  const double count = (double)(p->channels * p->run);
  double sum = 0, squares = 0;
  for (int64_t c = first; c < last; ++c)
    for (int64_t i = 0; i < p->run; ++i) sum += at(&p->x, p->dtype, b, c, i);
  const double mean = sum / count;
  for (int64_t c = first; c < last; ++c)
    for (int64_t i = 0; i < p->run; ++i) {
      const double d = at(&p->x, p->dtype, b, c, i) - mean;
      squares += d * d;
    }
  const double rstd = 1.0 / sqrt(squares / count + (double)p->eps);
  if (p->mean) p->mean[b * p->groups + g] = (float)mean;
  if (p->rstd) p->rstd[b * p->groups + g] = (float)rstd;
  for (int64_t c = first; c < last; ++c)
    for (int64_t i = 0; i < p->run; ++i) {
      const double xhat = (at(&p->x, p->dtype, b, c, i) - mean) * rstd;
      put(&p->y, p->dtype, b, c, i, xhat * parameter(p->w, p->w_dtype, c, 1) + parameter(p->b, p->b_dtype, c, 0));
    }
}

tigon_status tigon_ref_group_norm_fwd(tigon_queue *queue, const tigon_group_norm_fwd_problem *p) {
  (void)queue;
  for (int64_t b = 0; b < p->batch; ++b)
    for (int64_t g = 0; g < p->groups; ++g) forward_group(p, b, g);
  return TIGON_OK;
}

static double xhat_at(const tigon_group_norm_bwd_problem *p, int64_t b, int64_t c, int64_t i) {
  const int64_t row = b * p->groups + c / p->channels;
  return (at(&p->x, p->dtype, b, c, i) - (double)p->mean[row]) * (double)p->rstd[row];
}

static void backward_group(const tigon_group_norm_bwd_problem *p, int64_t b, int64_t g) {
  const int64_t first = g * p->channels, last = first + p->channels;
  const double count = (double)(p->channels * p->run);
  double sum = 0, dot = 0;
  for (int64_t c = first; c < last; ++c)
    for (int64_t i = 0; i < p->run; ++i) {
      const double gradient = at(&p->dy, p->dtype, b, c, i) * parameter(p->w, p->w_dtype, c, 1);
      sum += gradient, dot += gradient * xhat_at(p, b, c, i);
    }
  for (int64_t c = first; c < last; ++c)
    for (int64_t i = 0; i < p->run; ++i) {
      const double gradient = at(&p->dy, p->dtype, b, c, i) * parameter(p->w, p->w_dtype, c, 1);
      put(&p->dx, p->dtype, b, c, i,
          (double)p->rstd[b * p->groups + g] * (gradient - sum / count - xhat_at(p, b, c, i) * (dot / count)));
    }
}

/* dw and db first: dx may be dy or x. */
tigon_status tigon_ref_group_norm_bwd(tigon_queue *queue, const tigon_group_norm_bwd_problem *p) {
  (void)queue;
  for (int64_t c = 0; (p->dw || p->db) && c < p->groups * p->channels; ++c) {
    double dw = 0, db = 0;
    for (int64_t b = 0; b < p->batch; ++b)
      for (int64_t i = 0; i < p->run; ++i) {
        const double dy = at(&p->dy, p->dtype, b, c, i);
        dw += dy * xhat_at(p, b, c, i), db += dy;
      }
    tigon_ref_put_sum(p->dw, p->dw_dtype, c, dw, p->accumulate);
    tigon_ref_put_sum(p->db, p->db_dtype, c, db, p->accumulate);
  }
  for (int64_t b = 0; b < p->batch; ++b)
    for (int64_t g = 0; g < p->groups; ++g) backward_group(p, b, g);
  return TIGON_OK;
}
