/* A model's weights in one safetensors file, or in several as transformers cuts large ones:
 *   model.safetensors.index.json   {"weight_map": {"model.norm.weight": "model-00002-of-00002.safetensors", ...}} */
#ifndef TRAIN_SHARDS_H
#define TRAIN_SHARDS_H

#include "safetensors.h"

typedef struct train_shards {
  train_safetensors *files;
  int64_t count;
} train_shards;

/* model.safetensors of the folder or, where it has none, every file that the index names. */
bool train_shards_open(const char *folder, train_shards *shards, train_error *error);
void train_shards_close(train_shards *shards);

/* The file that has this tensor; the first where none has. */
const train_safetensors *train_shards_holder(const train_shards *shards, const char *name);

#endif
