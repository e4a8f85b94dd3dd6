/* What the launchers and the kernels of attention agree on. */
#ifndef TIGON_CUDA_ATTENTION_H
#define TIGON_CUDA_ATTENTION_H

#include "problem.h"

enum {
  ATTENTION_TILE = 64,  /* queries, keys and columns of the head that are worked on together */
  ATTENTION_PITCH = 68, /* floats of a tile's row in shared memory: rows begin in different banks */
  ATTENTION_TILE_BYTES = ATTENTION_TILE * ATTENTION_PITCH * 4,
  ATTENTION_FMA_THREADS = 256,    /* a block, in f32 */
  ATTENTION_TENSOR_THREADS = 128, /* in 16-bit dtypes */
  ATTENTION_DELTA_THREADS = 256,
};

/* Tiles in a block's shared memory, where `kept` column tiles of the head stay there or in registers: the row side's, one of the
 * other side, and a place for each matrix of weights. */
static inline int attention_fwd_tiles(int kept, bool f32) { return kept + 1 + f32; }
static inline int attention_bwd_tiles(int kept, bool f32) { return 2 * kept + 2 + 2 * f32; }

typedef struct attention_walk {
  bool wide; /* four elements of a head are read, and two written, at a time */
} attention_walk;

#endif
