/* What the launcher and the kernels of cross_entropy agree on. */
#ifndef TIGON_CUDA_CROSS_ENTROPY_H
#define TIGON_CUDA_CROSS_ENTROPY_H

#include "problem/loss.h"

enum {
  CE_THREADS = 256,        /* a block of rows */
  CE_MOST_THREADS = 1024,  /* the same, of rows held whole: four blocks of 256, two of 512 or one share an SM */
  CE_PACKS = 16,           /* 16 bytes each, that a thread keeps of a held row: 64 KiB a block, three blocks on an SM */
  CE_GROUP = 4,            /* packs that are on their way, or waited for, together; held whole: those in registers */
  CE_TURNS = 4,            /* groups of a thread in the backward pass */
  CE_TOTAL_THREADS = 1024, /* the block that sums over all rows, or classes */
  CE_FEW_ROWS = 256,       /* or fewer: their kernel does that, too */
};

/* How rows are dealt out to threads. */
typedef struct ce_walk {
  int team;                 /* threads that share a row in a block: a power of two, from 32 */
  int packs;                /* packs of a thread, where rows are held */
  int64_t chunks;           /* backward: parts of a row, of CE_GROUP * CE_TURNS packs a thread */
  const double *weight_sum; /* sum over all classes; NULL if it equals their number, or nobody asks */
  unsigned *ticket;         /* counts the blocks that have ended, the last of which does COUNT and REDUCE; or NULL */
} ce_walk;

#endif
