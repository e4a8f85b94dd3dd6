/* What embedding's launcher and kernels agree on. */
#ifndef TIGON_CUDA_EMBEDDING_H
#define TIGON_CUDA_EMBEDDING_H

#include "cuda/map.h"

enum {
  EMBEDDING_FWD_PACKS = 2, /* packs of a thread */
  EMBEDDING_PLAIN_BITS = 7,
  EMBEDDING_PLAIN_THREADS = 1 << EMBEDDING_PLAIN_BITS,
  EMBEDDING_BWD_PACKS = 2,
  EMBEDDING_SORT_THREADS = 512,
  EMBEDDING_DIGIT_BITS = 9, /* the most bits of a pass of the sort; a thread for each digit */
  EMBEDDING_ZERO_ITEMS =
      16384,                  /* packs, or elements where rows are not aligned, that a block of zeros writes at most */
  EMBEDDING_ZERO_ROWS = 1024, /* table rows of such a block at most */
  EMBEDDING_CHUNK = 64,       /* sorted positions at least that one thread adds up */
};

/* Forward, for rows of y at one pitch. A team of 2^team_bits threads has a tile of a row. Tiles of one row are neighbours, and
 * the grid's second extent counts rows. In the order of their use, since a line of parameters, 64 bytes, costs a cold call 0.2
 * us. */
typedef struct embedding_plain {
  int rows, cols, team_bits;
  tigon_dtype idx_dtype;
  const void *idx;
  int64_t vocab;
  const void *table;
  int table_pitch, y_pitch;
  void *y;
  int32_t *error_flag;
} embedding_plain;

/* The positions sorted by index, stable: an item is key << position_bits | position. The key is the index, or `vocab` for a position
 * without a gradient. Pass i writes items[i % 2]. */
typedef struct embedding_order {
  uint64_t *items[2]; /* [rows] */
  int position_bits, digit_bits, passes;
} embedding_order;

/* Blocks of sums come first: a team has a sorted position, and does nothing unless a table row's positions, or a chunk of them,
 * begin there. A row's sum over more than one chunk is left in parts. A chunk has two lines: for the row that begins before the
 * chunk, and for the row that continues after it. */
typedef struct embedding_walk {
  const uint64_t *items; /* [rows] sorted */
  int position_bits;
  map_walk sums; /* how the sums of a row of dy are walked */
  int64_t sum_blocks;
  int64_t zero_rows, zero_tiles; /* table rows of a block of zeros; blocks side by side where that is one row */
  int64_t row_items;             /* packs or elements of a table row */
  int64_t chunk;                 /* sorted positions */
  float *parts;                  /* [2 * chunks, cols] */
} embedding_walk;

#endif
