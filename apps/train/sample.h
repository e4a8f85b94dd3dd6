/* Text from a model, token by token. */
#ifndef TRAIN_SAMPLE_H
#define TRAIN_SAMPLE_H

#include "decoder.h"
#include "draw.h"

/* Takes the next token; false ends the text. */
typedef bool (*train_token_sink)(void *user, int32_t token);

typedef struct train_text {
  const train_sampling *sampling;
  const int32_t *prompt; /* at least one token */
  int64_t prompt_count, count;
  train_token_sink sink;
  void *user;
} train_text;

/* Up to `count` tokens that follow the prompt go to the sink. When the decoder's positions are used up, it goes on from
 * the last half of them. */
bool train_write_text(train_decoder *decoder, const train_text *text, train_error *error);

/* The same with a decoder of its own, into tokens [count]. */
bool train_sample(train_memory *memory, train_model *model, const train_sampling *sampling, const int32_t *prompt,
                  int64_t prompt_count, int64_t count, int32_t *tokens, train_error *error);

#endif
