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
  /* Long rows: one block an SM, of whose warps one fetches, one adds up, and the others work. */
  DIV_STREAM_THREADS = 512, /* a block has room for so many times so many elements on either side */
  DIV_STREAM_ELEMENTS = 40,
  DIV_STREAM_BUFFERS = 3,     /* buffers of rows in shared memory, at most */
  DIV_STREAM_SPACE = 3 << 10, /* bytes of shared memory for what warps and blocks tell each other, at most */
  DIV_STREAM_TURNS = 2,       /* clusters, one after the other, that have an SM's rows */
  DIV_KL_WARPS = 22,          /* divergence_stream_kl.cu: those that work */
  DIV_HELD_WARPS = 16,        /* divergence_stream.cu: the same; a thread has registers for what follows */
  DIV_HELD_ELEMENTS = 32      /* two numbers each */
};

/* beta's numbers, of jsd: beta, 1 - beta, their logarithms, and the difference of these. */
typedef struct div_mixing {
  float beta, rest, log_beta, log_rest, odds;
} div_mixing;

/* How rows are dealt out to threads, and what the host has worked out. */
typedef struct div_walk {
  int team;     /* threads that share a row in a block: a power of two, from 32 */
  int packs;    /* packs of a thread on either side, where rows are held */
  int buffers;  /* long rows: of rows in shared memory */
  int slice;    /* the same: packs of a block's part of a row */
  int64_t rows; /* the same: of a cluster, one after the other */
  float by[2];  /* the same: what the input's and the target's logits are multiplied by, for logarithms to base 2 */
  int64_t first_row; /* the first row of the launch */
  int64_t chunks;    /* backward: parts of a row, of DIV_TURNS a thread */
  div_mixing mixing;
  float inverse; /* 1 / mean's denominator, where the host knows it; else 0, and it is in the workspace */
} div_walk;

#endif
