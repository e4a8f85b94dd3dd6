/* A checkpoint: a folder with
 *   config.json            the model's shape, for transformers and for a resumed run
 *   model.safetensors      the f32 weights under Hugging Face's names
 *   optimizer.safetensors  the AdamW moments, the losses and rates so far and, as metadata, step, options, loss scale and a
 *                          digest of the data
 *
 * Saving writes three temporary files, flushes them to the disk, and then renames model, optimizer, config in that order. So a
 * full disk leaves the previous checkpoint. After a kill between two renames, model.safetensors.tmp is absent. That shows that
 * the renames had begun, and opening finishes them.
 *
 * What transformers saves, a model.safetensors of another's or its shards and no optimizer.safetensors, opens as a
 * checkpoint of step 0. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "history.h"
#include "model.h"
#include "options.h"
#include "scaler.h"
#include "shards.h"

/* What changes from step to step besides tensors and losses. */
typedef struct train_state {
  train_scaler scaler; /* in a checkpoint that is read: scale 0 where it is not of f16 */
  int64_t best_step;   /* the step that --keep-best saved, 0: none yet; its held-out loss */
  double best_loss;
  int64_t tokens; /* that the steps had so far; -1 in a checkpoint that does not say */
} train_state;

/* What a checkpoint says besides tensors. */
typedef struct train_progress {
  int64_t step;    /* steps done */
  uint64_t digest; /* digest of the data */
  const train_options *options;
  const train_history *history;
  train_state state;
} train_progress;

void train_state_write(const train_state *state, json_t *metadata);
bool train_state_read(const train_safetensors *optimizer, int64_t step, train_state *state, train_error *error);

bool train_checkpoint_save(const char *folder, const train_model *model, const train_progress *progress,
                           train_error *error);

/* Bytes that a save writes, within a few KiB, for a run of `steps` steps. */
int64_t train_checkpoint_bytes(const train_model *model, int64_t steps);

bool train_checkpoint_exists(const char *folder);
/* Removes a checkpoint with its tokenizer, and the folder if it has nothing else. */
void train_checkpoint_remove(const char *folder);

typedef struct train_checkpoint {
  train_shards model;
  train_safetensors optimizer;
  train_config config;
  bool weights_only; /* no optimizer, step 0, no digest */
  int64_t step;
  uint64_t digest;
  train_state state;
} train_checkpoint;

/* Opens and cross-checks. `options` take the checkpoint's values where the user gave none, and borrow its texts: close it
 * after the run. A given option of the model that differs is an error, but for a shorter --seq with `weights_only`. */
bool train_checkpoint_open(const char *folder, train_checkpoint *checkpoint, train_options *options,
                           train_error *error);
/* Only the model, of a checkpoint of ours as of another's; changes nothing in the folder. */
bool train_checkpoint_open_weights(const char *folder, train_checkpoint *checkpoint, train_options *options,
                                   train_error *error);
void train_checkpoint_close(train_checkpoint *checkpoint);

/* Masters, moments and losses, these unless `history` is NULL; rounds the image. Weights in bf16 and f16 are widened. */
bool train_checkpoint_load(const train_checkpoint *checkpoint, train_model *model, train_history *history,
                           train_error *error);

/* A model that is only run: its shape and its weights in `dtype`, without masters in f32. The folder stays as it is. */
bool train_checkpoint_read(const char *folder, train_memory *memory, tigon_dtype dtype, train_model *model,
                           train_error *error);

#endif
