/* What the launcher and the kernels of divergence agree on. */
#ifndef TIGON_CUDA_DIVERGENCE_H
#define TIGON_CUDA_DIVERGENCE_H

#include "problem/loss.h"

enum {
  DIV_THREADS = 256,      /* of a block of several teams */
  DIV_MOST_THREADS = 512, /* of a team */
  DIV_PACKS =
      8, /* of a thread, of either side, where rows are held: 128 KiB of shared memory a block of the most threads */
  DIV_GROUP = 16,          /* packs or elements of a thread that are summed in f32 */
  DIV_TURNS = 8,           /* packs or elements of a thread in the backward pass */
  DIV_TOTAL_THREADS = 1024 /* the block that sums over all rows */
};

/* beta's numbers, of jsd: beta, 1 - beta, their logarithms, and the difference of these. */
typedef struct div_mixing {
  float beta, rest, log_beta, log_rest, odds;
} div_mixing;

/* How rows are dealt out to threads, and what the host has worked out. */
typedef struct div_walk {
  int team;          /* threads that share a row in a block: a power of two, from 32 */
  int packs;         /* of a thread, of either side, where rows are held */
  int64_t first_row; /* of the launch */
  int64_t chunks;    /* backward: parts of a row, of DIV_TURNS a thread */
  div_mixing mixing;
  float inverse; /* 1 / mean's denominator, where the host knows it; else 0, and it is in the workspace */
} div_walk;

#endif
