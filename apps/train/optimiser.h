/* AdamW over a model's tensors: groups, schedule, clipping. The moments live in the model. */
#ifndef TRAIN_OPTIMISER_H
#define TRAIN_OPTIMISER_H

#include <tigon/tigon.h>

#include "model.h"

typedef struct train_schedule {
  int64_t steps, warmup;
  double lr;    /* the peak */
  double floor; /* part of the peak that the cosine ends at */
} train_schedule;

/* The learning rate of step 1..steps: rises linearly over `warmup` steps to the peak, then falls as half a cosine and
 * reaches floor * lr at the last step. */
double train_learning_rate(const train_schedule *schedule, int64_t step);

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

/* Clips and applies the gradients. *norm is their norm before clipping; when that is not finite the weights stay as they
 * were and the error is TRAIN_EXIT_FAILED. */
bool train_optimiser_step(train_optimiser *optimiser, int64_t step, double lr, double *norm, train_error *error);

#endif
