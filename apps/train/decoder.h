/* A model that reads tokens in order: keys and values of the tokens before are kept, so a token passes the layers once.
 *
 * n tokens of one call, n <= rows; H hidden, I intermediate, V vocab. */
#ifndef TRAIN_DECODER_H
#define TRAIN_DECODER_H

#include "model.h"
#include "ops.h"

typedef struct train_decoder {
  train_model *model;
  train_ops ops;
  train_block arena;
  int64_t positions;         /* tokens that are kept at most */
  int64_t rows;              /* tokens of a call at most */
  int64_t fed;               /* tokens of the last call */
  tigon_tensor tokens;       /* [rows] i32 */
  tigon_tensor labels, loss; /* [rows] i32; [1] f32 */
  tigon_tensor numbers;      /* [positions] i32: 0, 1, ... */
  tigon_tensor s, x, y;      /* [rows, H] */
  tigon_tensor q, o;         /* [1, rows, heads, head_dim] */
  tigon_tensor gate_up, c;   /* [rows, 2 I], [rows, I] */
  tigon_tensor logits;       /* [1, V] f32 */
  tigon_tensor keys, values; /* [layers, positions, kv_heads, head_dim] */
} train_decoder;

/* positions must be at most the model's, rows at most positions. */
bool train_decoder_create(train_memory *memory, train_model *model, int64_t positions, int64_t rows,
                          train_decoder *decoder, train_error *error);
void train_decoder_destroy(train_memory *memory, train_decoder *decoder);

/* Takes `count` tokens (1 to rows) at positions first, first + 1, ... The tokens before `first` were fed earlier. */
bool train_decoder_feed(train_decoder *decoder, const int32_t *tokens, int64_t count, int64_t first,
                        train_error *error);

/* Writes the logits [V] of what follows the last fed token. */
bool train_decoder_logits(train_decoder *decoder, float *logits, train_error *error);

/* The loss of the last call's tokens, summed. A label may be TRAIN_NO_LABEL. */
bool train_decoder_loss(train_decoder *decoder, const int32_t *labels, double *sum, train_error *error);

#endif
