#include "opencl/kernel/adamw.h"

#include <math.h>

#include "core/check.h"
#include "core/context.h"
#include "opencl/opencl.h"
#include "opencl/tables.h"

_Static_assert(ADAMW_PARTIALS * sizeof(adamw_partial) <= TIGON_ADAMW_PARTIALS * sizeof(double), "clip's workspace");

static tigon_status step_one(tigon_queue *queue, const tigon_adamw_step_problem *p, const tigon_adamw_param *t) {
  static const opencl_kernel kernel = {"adamw", "adamw_step"};
  const opencl_device *d = opencl_of(queue);
  const adamw_numbers k = {.count = tigon_tensor_count(&t->param),
                           .beta1 = (float)p->beta1,
                           .beta2 = (float)p->beta2,
                           .rest1 = (float)(1 - p->beta1),
                           .rest2 = (float)(1 - p->beta2),
                           .eps = (float)p->eps,
                           .decay = (float)(p->lr * t->weight_decay),
                           .rate = (float)(p->lr / p->correction1),
                           .root = (float)(1 / sqrt(p->correction2)),
                           .grad_dtype = (int32_t)t->grad.dtype};
  const int64_t local = d->model == OPENCL_ITEMS ? 1 : d->group;
  const int64_t groups = opencl_ceil_div(opencl_ceil_div(k.count, d->lanes * ADAMW_EACH), local);
  return opencl_launch(
      queue, &kernel, t->param.dtype, (opencl_shape){.global = {groups * local}, .local = {local}},
      OPENCL_MEMORY(t->param.data, t->master.data, t->grad.data, t->exp_avg.data, t->exp_avg_sq.data, p->clip_factor),
      &k, sizeof k);
}

tigon_status tigon_opencl_adamw_step(tigon_queue *queue, const tigon_adamw_step_problem *p) {
  for (int64_t i = 0; i < p->count; ++i)
    if (tigon_tensor_count(&p->params[i].param) > 0) TIGON_TRY(step_one(queue, p, &p->params[i]));
  return TIGON_OK;
}

tigon_status tigon_opencl_adamw_clip(tigon_queue *queue, const tigon_adamw_clip_problem *p) {
  static const opencl_kernel squares = {"adamw", "adamw_squares"}, factor = {"adamw", "adamw_factor"};
  const opencl_device *d = opencl_of(queue);
  const int64_t local = d->model == OPENCL_ITEMS ? 1 : d->group;
  const opencl_shape shape = {.global = {ADAMW_PARTIALS * local}, .local = {local}};
  adamw_clip_numbers k = {.first = 1, .max_norm = (float)p->max_norm};
  for (int64_t i = 0; i < p->count; ++i) {
    k.count = tigon_tensor_count(&p->grads[i]);
    k.dtype = (int32_t)p->grads[i].dtype;
    if (k.count == 0) continue;
    TIGON_TRY(
        opencl_launch(queue, &squares, TIGON_F32, shape, OPENCL_MEMORY(p->grads[i].data, p->partials), &k, sizeof k));
    k.first = 0;
  }
  return opencl_launch(queue, &factor, TIGON_F32, (opencl_shape){.global = {1}, .local = {1}},
                       OPENCL_MEMORY(p->partials, p->norm, p->factor), &k, sizeof k);
}
