/* A model's weights under Hugging Face's names: the packed tensors in their parts. */
#ifndef TRAIN_PIECES_H
#define TRAIN_PIECES_H

#include "model.h"

typedef struct train_piece {
  char name[80];
  int64_t rows, cols; /* rows 0: a vector */
  int64_t offset;     /* elements into the flat buffers */
} train_piece;

int64_t train_piece_count(const train_config *config);
/* pieces [train_piece_count()], in the order of the flat buffers. */
void train_pieces(const train_model *model, train_piece *pieces);

#endif
