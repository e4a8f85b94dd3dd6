/* Constants and parameters that the launcher and the kernels of group_norm share. A row is a group of one batch. */
#ifndef TIGON_CUDA_GROUP_NORM_H
#define TIGON_CUDA_GROUP_NORM_H

#include "slabs.h"
#include "problem/norm.h"

enum {
  GROUP_FWD_THREADS = 256, /* the fewest threads of a forward block that holds rows; the most are GROUP_MOST_THREADS */
  GROUP_PLAIN_THREADS = 512, /* the most threads of a block that has one of group_plain's rows */
  GROUP_PLAIN_PACKS = 4,     /* packs of such a row that a thread has */
  GROUP_MOST_THREADS = 1024, /* the most threads of a block */
  GROUP_BWD_THREADS = 512,
  GROUP_WALK_THREADS = 512, /* the most threads of a block that walks */
  GROUP_PART = 65536, /* elements of a part of a walked row; rows of more than GROUP_PARTS of them have larger parts */
  GROUP_PARTS = 1024,
};

/* The parameters of the forward kernel for dense rows whose channels are whole packs, one row per block. A cold call waits 0.2 us for a
 * line of parameters (64 bytes). */
typedef struct group_plain {
  const void *x, *w, *b; /* w and b of x's dtype; either may be absent */
  void *y;
  float *mean, *rstd;  /* either may be absent */
  int packs;           /* packs of a row */
  unsigned channel_of; /* pack i belongs to channel i * channel_of >> 31 */
  unsigned channels;   /* channels of a row */
  float eps;
} group_plain;

/* How rows are distributed. The parts of a walked row depend only on its size, and so does the order of its sums. */
typedef struct group_walk {
  int team;               /* threads that share a row; walked: a channel */
  int share;              /* held: packs of a row that one block of the cluster has */
  int64_t ranges, splits; /* backward: ranges of the batch; ranges of a row's parts. Each pair has a slab */
  int64_t parts;          /* walked: parts of a row */
  int64_t pieces;         /* parts of a channel; 1: a part has whole channels */
  int64_t channels;       /* whole channels of a part */
  int64_t first, rows;    /* walked forward: the rows of this launch */
  void *handed;           /* walked, parts > 1: [rows, parts] of group_stats forward, of float2 backward */
} group_walk;

/* Forward, a part's mean and the sum of its squared differences from that mean. */
typedef struct group_stats {
  double mean, squares;
} group_stats;

#endif
