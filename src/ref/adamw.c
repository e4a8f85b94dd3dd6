#include <math.h>

#include "ref/ref.h"

static int64_t elements(const tigon_tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

static void step_one(const tigon_adamw_step_problem *p, const tigon_adamw_param *t, double clip) {
  const tigon_tensor *value = t->master.data ? &t->master : &t->param;
  const int64_t count = elements(&t->param);
  for (int64_t i = 0; i < count; ++i) {
    const double g = clip * tigon_load_f64(t->grad.data, i, t->grad.dtype);
    const double m = p->beta1 * tigon_load_f64(t->exp_avg.data, i, t->exp_avg.dtype) + (1 - p->beta1) * g;
    const double v = p->beta2 * tigon_load_f64(t->exp_avg_sq.data, i, t->exp_avg_sq.dtype) + (1 - p->beta2) * g * g;
    const double old = tigon_load_f64(value->data, i, value->dtype);
    const double move = (m / p->correction1) / (sqrt(v / p->correction2) + p->eps);
    const double new = old - p->lr *(t->weight_decay * old + move);
    tigon_store_f64(t->exp_avg.data, i, t->exp_avg.dtype, m);
    tigon_store_f64(t->exp_avg_sq.data, i, t->exp_avg_sq.dtype, v);
    tigon_store_f64(value->data, i, value->dtype, new);
    if (t->master.data) tigon_store_f64(t->param.data, i, t->param.dtype, tigon_load_f64(value->data, i, value->dtype));
  }
}

tigon_status tigon_ref_adamw_step(tigon_queue *queue, const tigon_adamw_step_problem *p) {
  (void)queue;
  for (int64_t i = 0; i < p->count; ++i) step_one(p, &p->params[i], p->clip_factor ? (double)*p->clip_factor : 1);
  return TIGON_OK;
}

tigon_status tigon_ref_adamw_clip(tigon_queue *queue, const tigon_adamw_clip_problem *p) {
  (void)queue;
  double sum = 0;
  for (int64_t i = 0; i < p->count; ++i) {
    const int64_t count = elements(&p->grads[i]);
    for (int64_t e = 0; e < count; ++e) {
      const double g = tigon_load_f64(p->grads[i].data, e, p->grads[i].dtype);
      sum += g * g;
    }
  }
  const double norm = sqrt(sum);
  *p->norm = (float)norm;
  *p->factor = p->max_norm > 0 && norm > p->max_norm ? (float)(p->max_norm / norm) : norm != norm ? (float)norm : 1;
  return TIGON_OK;
}
