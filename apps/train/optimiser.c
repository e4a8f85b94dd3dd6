#include "optimiser.h"

#include <math.h>
#include <stdlib.h>

static tigon_tensor flat(const train_model *model, int64_t index, void *base, tigon_dtype dtype) {
  const train_tensor *t = &model->tensors[index];
  return tigon_tensor_1d((char *)base + (size_t)t->offset * tigon_dtype_size(dtype), dtype, t->count);
}

/* The gradients are `scale` times the loss's, and so is the norm that they may have. */
static tigon_adamw_clip_args clip_args(train_optimiser *o, double scale) {
  return (tigon_adamw_clip_args){.grads = o->gradients,
                                 .count = o->model->tensor_count,
                                 .max_norm = o->clip * scale,
                                 .norm = tigon_tensor_1d(o->scalars.data, TIGON_F32, 1),
                                 .factor = tigon_tensor_1d((char *)o->scalars.data + 64, TIGON_F32, 1),
                                 .workspace = o->workspace.data,
                                 .workspace_bytes = o->workspace.bytes};
}

static void describe(train_optimiser *o, double weight_decay) {
  train_model *model = o->model;
  const bool rounded = model->dtype != TIGON_F32;
  for (int64_t i = 0; i < model->tensor_count; ++i) {
    const tigon_tensor master = flat(model, i, model->master.data, TIGON_F32);
    o->gradients[i] = flat(model, i, model->gradient.data, TIGON_F32);
    o->params[i] = (tigon_adamw_param){
        .param = rounded ? flat(model, i, model->image.data, model->dtype) : master,
        .grad = o->gradients[i],
        .exp_avg = flat(model, i, model->exp_avg.data, TIGON_F32),
        .exp_avg_sq = flat(model, i, model->exp_avg_sq.data, TIGON_F32),
        .weight_decay = model->tensors[i].rows ? weight_decay : 0,
    };
    if (rounded) o->params[i].master = master;
  }
}

bool train_optimiser_create(train_model *model, double beta1, double beta2, double weight_decay, double clip,
                            train_optimiser *o, train_error *error) {
  tigon_context *context = model->memory->context;
  const size_t count = (size_t)model->tensor_count;
  *o = (train_optimiser){.model = model, .beta1 = beta1, .beta2 = beta2, .eps = 1e-8, .clip = clip};
  o->params = calloc(count, sizeof *o->params);
  o->gradients = calloc(count, sizeof *o->gradients);
  size_t bytes = 0;
  bool made = (o->params && o->gradients) ||
              train_fail(error, TRAIN_EXIT_TROUBLE, "no memory for the optimiser's list of weights");
  made = made && train_device_alloc(model->memory, 128, "the gradient's norm", &o->scalars, error);
  if (made) {
    describe(o, weight_decay);
    const tigon_adamw_clip_args args = clip_args(o, 1);
    made = train_ok(context, tigon_adamw_clip_workspace(context, &args, &bytes), error) &&
           train_device_alloc(model->memory, bytes, "the optimiser's workspace", &o->workspace, error);
  }
  if (!made) train_optimiser_destroy(o);
  return made;
}

void train_optimiser_destroy(train_optimiser *o) {
  if (!o->model) return;
  train_device_free(o->model->memory, &o->scalars);
  train_device_free(o->model->memory, &o->workspace);
  free(o->params);
  free(o->gradients);
  *o = (train_optimiser){0};
}

/* The factor takes the scale out of the gradients too. */
static bool unscale(tigon_context *context, const tigon_tensor *factor, double scale, train_error *error) {
  float value = 0;
  if (scale == 1) return true;
  if (!train_ok(context, tigon_copy(context, &value, factor->data, sizeof value), error)) return false;
  value = (float)((double)value / scale);
  return train_ok(context, tigon_copy(context, factor->data, &value, sizeof value), error);
}

bool train_optimiser_step(train_optimiser *o, int64_t step, double lr, double scale, double *norm, train_error *error) {
  tigon_context *context = o->model->memory->context;
  const tigon_adamw_clip_args clip = clip_args(o, scale);
  const tigon_adamw_step_args args = {.params = o->params,
                                      .count = o->model->tensor_count,
                                      .clip_factor = clip.factor,
                                      .lr = lr,
                                      .beta1 = o->beta1,
                                      .beta2 = o->beta2,
                                      .eps = o->eps,
                                      .step = step};
  float measured = 0;
  if (!train_ok(context, tigon_adamw_clip(context, &clip), error) ||
      !train_ok(context, tigon_copy(context, &measured, clip.norm.data, sizeof measured), error))
    return false;
  *norm = (double)measured / scale;
  return !isfinite(measured) ||
         (unscale(context, &clip.factor, scale, error) && train_ok(context, tigon_adamw_step(context, &args), error));
}
