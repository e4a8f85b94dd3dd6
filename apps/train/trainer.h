/* A trainer: a model with its optimiser and its pass, and what one step and one evaluation are. */
#ifndef TRAIN_TRAINER_H
#define TRAIN_TRAINER_H

#include "data.h"
#include "optimiser.h"
#include "pass.h"
#include "ranks.h"
#include "scaler.h"

typedef struct train_trainer {
  train_memory memory;
  train_model model;
  train_optimiser optimiser;
  train_pass pass;
  train_scaler scaler;
  train_block batch;     /* host: tokens, then labels, of one micro-batch */
  train_block rank_sums; /* host: 2 doubles a rank */
  train_block stage;     /* host: for adding up gradients */
  const train_ranks *ranks;
  const train_options *options;
  const train_data *data;
} train_trainer;

/* `base` bytes count as held before: the data. Weights are unset. */
bool train_trainer_create(tigon_context *context, const train_options *options, const train_data *data,
                          const train_ranks *ranks, bool fused, size_t base, train_trainer *trainer,
                          train_error *error);
void train_trainer_destroy(train_trainer *trainer);

typedef struct train_step_result {
  double loss;  /* mean over the tokens of the global batch, before the update */
  double norm;  /* norm of the gradient, before clipping; not finite when `skipped` */
  double scale; /* loss scale that it was taken with */
  bool skipped; /* f16: the gradient overflowed, so weights and moments stay */
  double lr;
  int signal; /* the largest `signal` of all ranks */
} train_step_result;

/* Step 1, 2, ...: gradients of this rank's micro-batches, added up over the ranks, then the update. A loss that is not
 * finite is TRAIN_EXIT_FAILED, before the update; so is a gradient that is not, unless a lower loss scale may help. */
bool train_trainer_step(train_trainer *trainer, int64_t step, int signal, train_step_result *result,
                        train_error *error);

/* Mean loss over at most `windows` windows of the held-out part, spread evenly. */
bool train_trainer_evaluate(train_trainer *trainer, int64_t windows, double *loss, train_error *error);

#endif
