/* AdamW over a model's tensors: groups, clipping. The moments live in the model. */
#ifndef TRAIN_OPTIMISER_H
#define TRAIN_OPTIMISER_H

#include <tigon/tigon.h>

#include "model.h"

typedef struct train_optimiser {
  train_model *model;
  tigon_adamw_param *params; /* [model->tensor_count] */
  tigon_tensor *gradients;   /* [model->tensor_count] */
  train_block scalars;       /* norm, factor: 64 bytes each */
  train_block workspace;
  double beta1, beta2, eps, clip;
} train_optimiser;

/* Matrices decay by weight_decay, vectors (the norms) do not. */
bool train_optimiser_create(train_model *model, double beta1, double beta2, double weight_decay, double clip,
                            train_optimiser *optimiser, train_error *error);
void train_optimiser_destroy(train_optimiser *optimiser);

/* Clips and applies the gradients, which are `scale` times the loss's: update number `step` of the weights, 1, 2, ...
 * *norm is the norm of the loss's gradient before clipping. Where it is not finite, weights and moments stay as they were. */
bool train_optimiser_step(train_optimiser *optimiser, int64_t step, double lr, double scale, double *norm,
                          train_error *error);

#endif
