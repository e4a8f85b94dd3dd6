/* The data of a run: a part to train on, a part held out, and which tokens a step sees. */
#ifndef TRAIN_DATA_H
#define TRAIN_DATA_H

#include "options.h"
#include "source.h"

/* A run of tokens of a source. */
typedef struct train_part {
  const train_source *source;
  int64_t first, count;
} train_part;

typedef struct train_data {
  train_source source, heldout_source; /* the second is empty when the held-out part is the end of the first */
  train_part train, heldout;
  int64_t vocab;
  uint64_t digest; /* digest of both parts */
} train_data;

/* Opens what the options name, splits it and finds the vocabulary (options->vocab unless 0). Both parts hold at least
 * seq + 1 tokens. Tokenizer NULL: a token of text is a byte. */
bool train_data_open(train_memory *memory, const train_options *options, train_tokenizer *tokenizer, train_data *data,
                     train_error *error);
void train_data_close(train_memory *memory, train_data *data);

/* Sequences [first, first + count) of the `batch` that step `step` sees, into tokens and labels, each [count, seq]. A
 * sequence begins anywhere in the training part: a pure function of (seed, step, sequence). */
bool train_data_batch(const train_data *data, int64_t seed, int64_t step, int64_t batch, int64_t seq, int64_t first,
                      int64_t count, int32_t *tokens, int32_t *labels, train_error *error);

/* The held-out part cut into windows of seq tokens that do not overlap. */
int64_t train_data_windows(const train_data *data, int64_t seq);
bool train_data_window(const train_data *data, int64_t seq, int64_t window, int32_t *tokens, int32_t *labels,
                       train_error *error);

#endif
