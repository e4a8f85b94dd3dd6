/* How well a model predicts a text: the mean loss of its tokens, each in the context of those before it. */
#ifndef TRAIN_EVALUATE_H
#define TRAIN_EVALUATE_H

#include "reader.h"

typedef struct train_evaluation {
  int64_t context, stride; /* tokens of a window; from one window to the next, at most context */
  int64_t windows, tokens; /* that there are; counted ones: all but the first */
  double loss;             /* nats per token */
} train_evaluation;

/* Windows begin at 0, stride, 2 stride, ... A window counts the tokens that no earlier one has counted. Two tokens at
 * least. `progress` may be NULL. */
bool train_evaluate(train_reader *reader, const train_tokens *tokens, void (*progress)(int64_t done, int64_t total),
                    train_evaluation *evaluation, train_error *error);

#endif
