/* The losses and learning rates of a run so far, for the curve and for the checkpoint. */
#ifndef TRAIN_HISTORY_H
#define TRAIN_HISTORY_H

#include <stdint.h>

#include "error.h"

typedef struct train_history {
  float *loss, *rate; /* losses of steps 1, 2, ... and the learning rates, NaN where an older checkpoint did not say */
  int64_t steps, capacity;
  int64_t *eval_step; /* steps after which the held-out loss was taken, and those losses */
  float *eval_loss;
  int64_t evals, eval_capacity;
} train_history;

bool train_history_add(train_history *history, float loss, float rate, train_error *error);
bool train_history_add_eval(train_history *history, int64_t step, float loss, train_error *error);
void train_history_free(train_history *history);

#endif
