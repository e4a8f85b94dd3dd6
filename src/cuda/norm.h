/* What launchers and kernels of the norms agree on. */
#ifndef TIGON_CUDA_NORM_H
#define TIGON_CUDA_NORM_H

#include <stdbool.h>

#include "slabs.h"
#include "problem/norm.h"

enum {
  NORM_FWD_THREADS = 256,   /* of a forward block in which each warp has a row */
  NORM_MOST_THREADS = 1024, /* of a block */
  NORM_HELD_THREADS = 512,  /* of layer_norm's block that holds NORM_SWEPT_PACKS */
  NORM_WHOLE_PACKS = 1024,  /* of its whole rows, at most: w and b are there, and packs a power of two */
  NORM_GROUP_ROWS = 4,      /* of a team of modulated_rms_norm forward, which share a scale; of each a thread has */
  NORM_GROUP_PACKS = 2,
  NORM_SHARE_THREADS = 512,  /* of a forward block that shares rows with others of its cluster */
  NORM_SWEPT_THREADS = 1024, /* of a forward block whose row is swept twice, at most */
  NORM_SWEPT_PACKS = 2048,   /* of 16 bytes: beyond them a row of layer_norm or modulated_rms_norm is swept */
  NORM_BWD_THREADS = 512,
  NORM_BWD_PACKS = 2,        /* 16 bytes each, of a row, a thread and a tensor in the backward block */
  NORM_BWD_STAGES = 3,       /* rows of a team on their way into shared memory, the one in work among them */
  NORM_STAGED_THREADS = 512, /* of a backward block whose rows are staged */
  NORM_STAGED_PACKS = 4,     /* of a row, a thread and a stage */
  NORM_STAGED_STAGES = 3,    /* of dy, and as many of x */
  NORM_FEW_THREADS = 512,    /* of a backward block that has few rows, in a cluster */
  NORM_FEW_CLUSTER_BITS = 3, /* of 1 << so many blocks at most, */
  NORM_FEW_COUNTS = 32,      /* whose ticket has so many bits */
};

/* How rows are dealt out to threads. */
typedef struct norm_walk {
  int team;       /* threads that share a row: a power of two, from 32 to a block's */
  int share;      /* forward, rows that a cluster holds: packs of each block */
  int64_t ranges; /* backward: ranges of rows, each with a slab */
  int64_t parts;  /* modulated backward: ranges of a group of rows that share a scale; 0: a range has whole groups */
} norm_walk;

/* Rows at one pitch, and vectors of their dtype, as the kernels that hold them by themselves read them. A line of parameters, 64 bytes,
 * costs a cold call 0.2 us: those that all read come first. */
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
  float eps, w_offset; /* 1 where w is absent, which then counts as 0 */
  tigon_casting casting;
  bool stays; /* in 16 bits y is larger than the L2 */
  norm_plain_rows y, s;
  const void *b;
  float *mean;
  int64_t share;
  tigon_dtype scale_dtype, shift_dtype;
  norm_plain_rows scale, shift;
  norm_plain_rows z;
} norm_plain;

/* The same of rows that a block of backward holds. */
typedef struct norm_held {
  const void *dy, *x, *w;
  const float *rstd;
  int dy_pitch, x_pitch, cols, rows;
  void *dx;
  float *slabs; /* NULL: no dw is asked for, and no db */
  const float *mean;
  const void *ds;
  int dx_pitch, ds_pitch;
  float w_offset, share; /* w_offset as above; share: 1 / cols */
  tigon_casting casting;
  int team_bits; /* 1 << so many threads */
} norm_held;

/* The same of few rows backward: only the last two, which several clusters read, are beyond. Cluster i of n has rows i, i + n, ...; of
 * several each has a slab. */
typedef struct norm_few {
  const void *dy, *x, *w;
  const float *rstd;
  int dy_pitch, x_pitch, cols, rows;
  void *dx, *dw, *db;
  const float *mean;
  const void *ds;
  int dx_pitch, ds_pitch;
  float w_offset, share;           /* w_offset as above; share: 1 / cols */
  uint8_t team_bits, cluster_bits; /* 1 << so many threads, blocks */
  uint8_t clusters, each;          /* rows of a team, at most */
  uint8_t casting, dw_dtype, db_dtype;
  bool accumulate; /* dw and db */
  float *slabs;
  unsigned *ticket;
} norm_few;

#endif
