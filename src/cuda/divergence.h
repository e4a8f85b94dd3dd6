/* What the launcher and the kernels of divergence agree on. */
#ifndef TIGON_CUDA_DIVERGENCE_H
#define TIGON_CUDA_DIVERGENCE_H

#include "problem/loss.h"

enum {
  DIV_THREADS = 256,      /* threads of a block of several teams */
  DIV_MOST_THREADS = 512, /* the most threads of a team */
  DIV_PACKS =
      8, /* packs of a thread on either side, where rows are held: 128 KiB of shared memory for a block of the most threads */
  DIV_GROUP = 16,           /* packs or elements of a thread that are summed in f32 */
  DIV_TURNS = 8,            /* packs or elements of a thread in the backward pass */
  DIV_TOTAL_THREADS = 1024, /* the block that sums over all rows */
  /* divergence_stream.cu: one block an SM, of whose registers a thread has up to 80 for its elements */
  DIV_STREAM_THREADS = 512,
  DIV_STREAM_ELEMENTS = 40, /* elements of a thread, on either side */
  DIV_STREAM_BUFFERS = 3,   /* buffers of rows in shared memory, at most */
  DIV_STREAM_TURNS =
      4, /* clusters, one after the other, that have an SM's rows: where others run, too, none waits for long */
  /* divergence_stream_kl.cu: the same, of one block an SM; of its warps one fetches, one adds up, and these open and close rows */
  DIV_KL_TURNS = 2,
  DIV_KL_WARPS = 22,
  DIV_KL_THREADS = (DIV_KL_WARPS + 2) * 32,
};

/* beta's numbers, of jsd: beta, 1 - beta, their logarithms, and the difference of these. */
typedef struct div_mixing {
  float beta, rest, log_beta, log_rest, odds;
} div_mixing;

/* How rows are dealt out to threads, and what the host has worked out. */
typedef struct div_walk {
  int team;          /* threads that share a row in a block: a power of two, from 32 */
  int packs;         /* packs of a thread on either side, where rows are held */
  int buffers;       /* divergence_stream.cu: of rows in shared memory */
  int slice;         /* the same: packs of a block's part of a row */
  int64_t rows;      /* the same: of a cluster, one after the other */
  int64_t first_row; /* the first row of the launch */
  int64_t chunks;    /* backward: parts of a row, of DIV_TURNS a thread */
  div_mixing mixing;
  float inverse; /* 1 / mean's denominator, where the host knows it; else 0, and it is in the workspace */
} div_walk;

#endif
