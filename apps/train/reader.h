/* A checkpoint that is only run, for `tigon generate` and `tigon eval`: device, weights, tokenizer. */
#ifndef TRAIN_READER_H
#define TRAIN_READER_H

#include "model.h"
#include "tokenizer.h"

typedef struct train_reader_options {
  const char *folder;
  const char *tokenizer; /* NULL: the folder's tokenizer.json, else bytes where the vocabulary is 256 */
  const char *device, *dtype;
  int threads;
  bool tokens_only; /* a tokenizer that is not there, or cannot be read, is no mistake: the reader's is NULL */
} train_reader_options;

enum { TRAIN_ENDS = 16 };

typedef struct train_reader {
  tigon_context *context;
  train_memory memory;
  train_model model;
  train_tokenizer *tokenizer;
  int32_t ends[TRAIN_ENDS]; /* the tokens that end a text: eos_token_id of generation_config.json or config.json */
  int end_count;
} train_reader;

/* On failure the reader is closed. */
bool train_reader_open(const train_reader_options *options, train_reader *reader, train_error *error);
void train_reader_close(train_reader *reader);

#endif
