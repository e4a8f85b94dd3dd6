/* Constants and parameters that launchers and kernels of the norms share. docs/glossary.md defines held, shared, swept, staged and
 * few. A pack is 16 bytes. */
#ifndef TIGON_CUDA_NORM_H
#define TIGON_CUDA_NORM_H

#include <stdbool.h>

#include "slabs.h"
#include "problem/norm.h"

enum {
  NORM_FWD_THREADS = 256,    /* threads of a forward block in which each warp has a row */
  NORM_MOST_THREADS = 1024,  /* the most threads of a block */
  NORM_HELD_THREADS = 512,   /* threads of layer_norm's block that holds NORM_SWEPT_PACKS */
  NORM_WHOLE_PACKS = 1024,   /* the most packs of layer_norm's rows with w, b and a power of two of packs */
  NORM_GROUP_ROWS = 4,       /* rows of a team of modulated_rms_norm forward, which share a scale */
  NORM_GROUP_PACKS = 2,      /* packs of each of these rows that a thread has */
  NORM_SHARE_THREADS = 512,  /* threads of a forward block that shares rows with others of its cluster */
  NORM_SWEPT_THREADS = 1024, /* the most threads of a forward block that sweeps its row twice */
  NORM_SWEPT_PACKS = 2048,   /* a row of layer_norm or modulated_rms_norm with more packs is swept */
  NORM_BWD_THREADS = 512,    /* threads of a backward block */
  NORM_BWD_PACKS = 2,        /* packs of a row that a thread of a backward block has of each tensor */
  NORM_BWD_STAGES = 3,       /* rows of a team in shared memory: the current row and rows on their way */
  NORM_STAGED_THREADS = 512, /* threads of a backward block whose rows are staged */
  NORM_STAGED_PACKS = 4,     /* packs of a row that a thread has in a stage */
  NORM_STAGED_STAGES = 3,    /* stages of dy, and as many of x */
  NORM_FEW_THREADS = 512,    /* threads of a backward block with few rows */
  NORM_FEW_CLUSTER_BITS = 3, /* such blocks form clusters of at most 1 << NORM_FEW_CLUSTER_BITS */
  NORM_FEW_COUNTS = 32,      /* bits of a cluster's ticket */
};

/* How rows are distributed to threads. */
typedef struct norm_walk {
  int team;       /* threads that share a row: a power of two, from 32 to a block's */
  int share;      /* forward, rows that a cluster holds: packs of each block */
  int64_t ranges; /* backward: ranges of rows, each with a slab */
  int64_t parts;  /* modulated backward: ranges of one group of rows with the same scale; 0: a range has whole groups */
} norm_walk;

/* The parameters of forward kernels for plain rows. A cold call waits 0.2 us for a line of parameters (64 bytes). So parameters that
 * all kernels read come first. */
typedef struct norm_plain_rows {
  void *data;
  int64_t pitch;
} norm_plain_rows;
typedef struct norm_plain {
  int cols, team;
  int64_t rows;
  norm_plain_rows x, residual;
  const void *w;
  float *rstd;
  float eps, w_offset; /* without w the kernel adds 0 to w_offset, which is 1 */
  tigon_casting casting;
  bool stays; /* a y of 16-bit elements is larger than the L2 */
  norm_plain_rows y, s;
  const void *b;
  float *mean;
  int64_t share;
  tigon_dtype scale_dtype, shift_dtype;
  norm_plain_rows scale, shift;
  norm_plain_rows z;
} norm_plain;

/* The parameters of backward kernels that hold plain rows. */
typedef struct norm_held {
  const void *dy, *x, *w;
  const float *rstd;
  int dy_pitch, x_pitch, cols, rows;
  void *dx;
  float *slabs; /* NULL: neither dw nor db is wanted */
  const float *mean;
  const void *ds;
  int dx_pitch, ds_pitch;
  float w_offset, share; /* w_offset as above; share: 1 / cols */
  tigon_casting casting;
  int team_bits; /* 1 << so many threads */
} norm_held;

/* The parameters of the backward kernel for few plain rows. Cluster i of n has rows i, i + n, .... If n > 1 each cluster has a slab.
 * Only then are the last two fields read. The others fit two lines of parameters. */
typedef struct norm_few {
  const void *dy, *x, *w;
  const float *rstd;
  int dy_pitch, x_pitch, cols, rows;
  void *dx, *dw, *db;
  const float *mean;
  const void *ds;
  int dx_pitch, ds_pitch;
  float w_offset, share;           /* w_offset as above; share: 1 / cols */
  uint8_t team_bits, cluster_bits; /* 1 << team_bits threads, 1 << cluster_bits blocks */
  uint8_t clusters, each;          /* each: the most rows of a team */
  uint8_t casting, dw_dtype, db_dtype;
  bool accumulate; /* dw and db */
  float *slabs;
  unsigned *ticket;
} norm_few;

#endif
