/* What the launcher and the kernels of group_norm agree on. A row is a group of one batch. */
#ifndef TIGON_CUDA_GROUP_NORM_H
#define TIGON_CUDA_GROUP_NORM_H

#include "slabs.h"
#include "problem/norm.h"

enum {
  GROUP_FWD_THREADS = 256,   /* the least of a forward block that holds rows; the most is MOST */
  GROUP_PLAIN_THREADS = 512, /* the most of a block that has one of group_plain's rows, of which a thread has */
  GROUP_PLAIN_PACKS = 4,
  GROUP_MOST_THREADS = 1024, /* of a block */
  GROUP_BWD_THREADS = 512,
  GROUP_WALK_THREADS = 512, /* the most of a block that walks */
  GROUP_PART = 65536,       /* elements of a walked row's part; rows beyond PARTS of them have larger ones */
  GROUP_PARTS = 1024,
};

/* Forward, dense rows of whole packs a channel, as the kernel that has a row a block reads them. A line of parameters, 64 bytes, costs a
 * cold call 0.2 us. */
typedef struct group_plain {
  const void *x, *w, *b; /* w and b of x's dtype; either may be absent */
  void *y;
  float *mean, *rstd;  /* either may be absent */
  int packs;           /* of a row */
  unsigned channel_of; /* pack i is of channel i * channel_of >> 31 */
  unsigned channels;   /* of a row */
  float eps;
} group_plain;

/* How rows are dealt out. A walked row's parts depend on its size alone, and so does the order of its sums. */
typedef struct group_walk {
  int team;               /* threads that share a row; walked: a channel */
  int share;              /* held: packs of a row that one block of the cluster has */
  int64_t ranges, splits; /* backward: ranges of the batch; of a row's parts. Each pair has a slab */
  int64_t parts;          /* walked: of a row */
  int64_t pieces;         /* parts of a channel, or 1: */
  int64_t channels;       /* whole channels of a part */
  int64_t first, rows;    /* walked forward: the rows of this launch */
  void *handed;           /* walked, parts > 1: [rows, parts] of group_stats forward, of float2 backward */
} group_walk;

/* Forward, of a part: its mean, and the sum of squared differences from that. */
typedef struct group_stats {
  double mean, squares;
} group_stats;

#endif
