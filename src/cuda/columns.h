/* Constants and parameters that launchers and kernels share, for rows with vectors of columns. A thread has a pack of columns,
 * with its vectors and sums in registers. Forward it has one row, or of many rows four, backward it goes down the rows. */
#ifndef TIGON_CUDA_COLUMNS_H
#define TIGON_CUDA_COLUMNS_H

#include "cuda/column_sum.h"
#include "problem/columns.h"

enum {
  COLUMNS_BITS = 8,
  COLUMNS_THREADS = 1 << COLUMNS_BITS,
  COLUMNS_ROWS = 4,        /* rows that a thread has, where there are many: a vector is read for all of them at once */
  COLUMNS_TALL_BLOCKS = 4, /* an SM's, with so many rows */
  COLUMNS_BWD_BLOCKS = 2,  /* blocks of an SM */
  COLUMNS_BWD_BLOCKS_F32 = 3, /* whose threads have half the columns */
  COLUMNS_SLAB_ROWS = 4,      /* at least */
};

/* A block has COLUMNS_THREADS >> team_bits rows at a time, and of each a tile of columns; each has a slab in backward. */
typedef struct columns_walk {
  int team_bits;
  int64_t blocks, tiles; /* down the rows, of columns */
  int64_t slabs;         /* backward, rows of all blocks at a time: each adds up in one */
  float *words;          /* [blocks, tiles]: a block's sum of the number's gradient; NULL: no sums are wanted */
} columns_walk;

#ifndef __CUDACC__
#include "cuda/cuda.h"

/* `wide` and `any` of each way: rows of packs, of single elements; `tall`: COLUMNS_ROWS rows of packs; by dtype. */
typedef struct columns_kernels {
  cuda_kernel fwd_wide[3], fwd_tall[3], fwd_any[3], bwd_wide[3], bwd_any[3];
} columns_kernels;

tigon_status cuda_columns_fwd(tigon_queue *queue, const tigon_columns_problem *p, columns_kernels *kernels);
tigon_status cuda_columns_bwd(tigon_queue *queue, const tigon_columns_problem *p, columns_kernels *kernels);
/* The workspace: enough for packs and for single elements, because which of them it will be depends on addresses. */
int64_t cuda_columns_bytes(const tigon_queue *queue, const tigon_columns_problem *p);
#endif

#endif
