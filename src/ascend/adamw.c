/* adamw on Ascend: a list of tensors in as few launches as its arguments allow. */
#include <math.h>

#include "ascend/kernel/adamw.h"

#include "ascend/ascend.h"
#include "core/schema.h"

static int64_t elements(const tigon_tensor *t) {
  int64_t count = 1;
  for (int i = 0; i < t->ndim; ++i) count *= t->shape[i];
  return count;
}

/* A launch's tiles, cut as the planner cuts one tensor of as many elements. */
static void cut(adamw_list *list, const char *entry, const tigon_device_desc *device) {
  int64_t total = 0;
  tigon_footprint footprint;
  tigon_footprint_find("adamw", entry, TIGON_F32, &footprint);
  for (int64_t i = 0; i < list->tensors; ++i) total += list->of[i].count;
  list->tile = tigon_plan_line_tile(&footprint, device, total);
  list->tiles = 0;
  for (int64_t i = 0; i < list->tensors; ++i) list->tiles += (list->of[i].count + list->tile - 1) / list->tile;
}

/* The bytes of a list, which is planned as one tensor of its first one's kind. */
static tigon_status plan_list(tigon_queue *queue, const char *entry, tigon_dtype dtype, int64_t total) {
  tigon_plan plan;
  const tigon_plan_request call = {.op = "adamw", .entry = entry, .dtype = dtype, .rows = 1, .cols = total};
  return ascend_plan(queue, &call, &plan);
}

/* ---- step ---- */

tigon_status ascend_adamw_step(tigon_queue *queue, const tigon_adamw_step_problem *p) {
  const tigon_device_desc *device = &ascend_of(queue)->soc->device;
  adamw_step_arguments a = {.clip_factor = (gm_ptr)p->clip_factor,
                            .beta1 = (float)p->beta1,
                            .rest1 = (float)(1 - p->beta1),
                            .beta2 = (float)p->beta2,
                            .rest2 = (float)(1 - p->beta2),
                            .rate = (float)(p->lr / p->correction1),
                            .root = (float)(1 / sqrt(p->correction2)),
                            .eps = (float)p->eps};
  int64_t total = 0;
  for (int64_t i = 0; i < p->count; ++i) total += elements(&p->params[i].param);
  tigon_status status = TIGON_OK;
  if (total > 0)
    status = plan_list(queue, p->params->master.data ? "step_master" : "step", p->params->param.dtype, total);
  for (int64_t i = 0; i < p->count && status == TIGON_OK;) {
    a.list.tensors = 0;
    for (; i < p->count && a.list.tensors < ADAMW_TENSORS; ++i) {
      const tigon_adamw_param *t = &p->params[i];
      if (elements(&t->param) == 0) continue;
      ascend_uses_element(queue, &tigon_adamw_step_schema, t);
      a.list.of[a.list.tensors++] = (adamw_tensor){.param = t->param.data,
                                                   .master = t->master.data,
                                                   .grad = t->grad.data,
                                                   .exp_avg = t->exp_avg.data,
                                                   .exp_avg_sq = t->exp_avg_sq.data,
                                                   .count = elements(&t->param),
                                                   .dtype = t->param.dtype,
                                                   .grad_dtype = t->grad.dtype,
                                                   .decay = (float)(p->lr * t->weight_decay)};
    }
    if (a.list.tensors == 0) continue;
    cut(&a.list, "step", device);
    status = ascend_launch(queue, "adamw_step", adamw_step, &a, least(a.list.tiles, device->cores));
  }
  return status;
}

/* ---- clip ---- */

tigon_status ascend_adamw_clip(tigon_queue *queue, const tigon_adamw_clip_problem *p) {
  const tigon_device_desc *device = &ascend_of(queue)->soc->device;
  adamw_squares_arguments a = {.partials = (gm_ptr)p->partials};
  int64_t blocks = 0, total = 0;
  for (int64_t i = 0; i < p->count; ++i) total += elements(&p->grads[i]);
  tigon_status status = total > 0 ? plan_list(queue, "clip", p->grads->dtype, total) : TIGON_OK;
  if (status != TIGON_OK) return status;
  for (int64_t i = 0; i < p->count;) {
    a.list.tensors = 0;
    for (; i < p->count && a.list.tensors < ADAMW_TENSORS; ++i) {
      const tigon_tensor *t = &p->grads[i];
      if (elements(t) == 0) continue;
      a.list.of[a.list.tensors++] = (adamw_tensor){.grad = t->data, .count = elements(t), .grad_dtype = t->dtype};
      ascend_uses_element(queue, &tigon_adamw_clip_schema, t);
    }
    if (a.list.tensors == 0) continue;
    cut(&a.list, "clip", device);
    a.add = blocks > 0;
    /* Each launch has as many blocks, so that each finds what its forerunner left. */
    if (blocks == 0) blocks = i < p->count ? device->cores : least(a.list.tiles, device->cores);
    status = ascend_launch(queue, "adamw_squares", adamw_squares, &a, blocks);
    if (status != TIGON_OK) return status;
  }
  const adamw_norm_arguments norm = {.partials = (gm_ptr)p->partials,
                                     .norm = (gm_ptr)p->norm,
                                     .factor = (gm_ptr)p->factor,
                                     .count = blocks,
                                     .max_norm = (float)p->max_norm};
  return ascend_launch(queue, "adamw_norm", adamw_norm, &norm, 1);
}
