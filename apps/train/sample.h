/* Text from a model, token by token, with keys and values of the tokens before kept. */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include "model.h"

typedef struct train_sampling {
  double temperature; /* 0: the likeliest token */
  int64_t top_k;      /* 0: all */
  uint64_t seed;
} train_sampling;

/* Writes `count` tokens that follow the prompt (at least one token). When the model's positions are used up, it goes on from
 * the last half of them. */
bool train_sample(train_memory *memory, train_model *model, const train_sampling *sampling, const int32_t *prompt,
                  int64_t prompt_count, int64_t count, int32_t *tokens, train_error *error);

#endif
