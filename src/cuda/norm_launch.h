/* The launches of the norms: which entry of norm_kernels.def takes a call. */
#ifndef TIGON_CUDA_NORM_LAUNCH_H
#define TIGON_CUDA_NORM_LAUNCH_H

#include "cuda/cuda.h"
#include "cuda/norm.h"

/* Properties that a call has and that a kernel needs. */
enum {
  NORM_FWD = 1 << 0,
  NORM_BWD = 1 << 1,
  NORM_WIDE = 1 << 2,  /* all rows and vectors can be read 16 bytes at a time */
  NORM_PLAIN = 1 << 3, /* rows are at one pitch, vectors of their dtype; forward also WIDE and ALONE */
  NORM_ALONE = 1 << 4, /* a block has a row without a cluster: there are rows for all SMs, or rows too short to share */
  NORM_MANY = 1 << 5,  /* more than two rows per SM, or rows of more packs than a block holds with two per thread */
  NORM_WHOLE = 1 << 6, /* w and b are present, and packs a power of two */
  NORM_GROUPS = 1 << 7,    /* NORM_GROUP_ROWS rows share a scale, and shared memory has room for them */
  NORM_SHARES = 1 << 8,    /* a cluster can hold a row, and should */
  NORM_SHORT = 1 << 9,     /* rows and pitches fit 32 bits */
  NORM_CLUSTERS = 1 << 10, /* the GPU has clusters */
  NORM_FEW = 1 << 11,      /* one launch takes all rows and sums over them */
};

/* The most packs of a row that a forward or backward block can hold, or a backward block can stage. */
enum {
  NORM_HELD_MOST = 4 * NORM_MOST_THREADS,
  NORM_BWD_MOST = NORM_BWD_PACKS * NORM_BWD_THREADS,
  NORM_STAGED_MOST = NORM_STAGED_PACKS * NORM_STAGED_THREADS,
  NORM_SWEPT_COLS = INT32_MAX / 2 - 1, /* a swept row's columns fit 32 bits twice */
};

/* How a row is held: docs/glossary.md. */
typedef enum norm_how {
  NORM_HOW_HELD,
  NORM_HOW_STASHED,
  NORM_HOW_SWEPT,
  NORM_HOW_SHARED,
  NORM_HOW_WALKED,
  NORM_HOW_STAGED,
  NORM_HOW_FEW
} norm_how;
/* A kernel's parameters: the problem and a norm_walk, or a struct of cuda/norm.h. AGAIN: an earlier entry has the kernel, whose
 * parameters are a problem and a walk. */
typedef enum norm_takes {
  NORM_TAKES_FWD,
  NORM_TAKES_BWD,
  NORM_TAKES_AGAIN,
  NORM_TAKES_PLAIN,
  NORM_TAKES_HELD,
  NORM_TAKES_FEW
} norm_takes;

/* An entry of cuda/norm_kernels.def. */
typedef struct norm_row {
  cuda_kernel kernels[3];
  norm_takes takes;
  norm_how how;
  int needs;
  int64_t over_packs, most_packs, over_cols, most_cols;
  int each; /* packs per thread */
} norm_row;
#define NORM_ROW(op, name, parameters, how_, needs_, over_packs_, most_packs_, over_cols_, most_cols_, each_, ...) \
  {.kernels = CUDA_KERNELS(op, op##_##name),                                                                       \
   .takes = NORM_TAKES_##parameters,                                                                               \
   .how = NORM_HOW_##how_,                                                                                         \
   .needs = needs_,                                                                                                \
   .over_packs = over_packs_,                                                                                      \
   .most_packs = most_packs_,                                                                                      \
   .over_cols = over_cols_,                                                                                        \
   .most_cols = most_cols_,                                                                                        \
   .each = each_},

tigon_status cuda_norm_fwd(tigon_queue *queue, const tigon_norm_fwd_problem *p, norm_row *rows);
/* Slabs of a gradient over rows: each block that sums over a range has its own SM. */
static inline int64_t cuda_norm_slabs(const tigon_queue *queue, const tigon_norm_bwd_problem *p) {
  return tigon_slabs(p->space.rows, cuda_of(queue)->desc.cores);
}

/* Makes dx, and the slabs of walk->ranges ranges of rows. It may lower walk->ranges, and it chooses walk->team. */
tigon_status cuda_norm_bwd_rows(tigon_queue *queue, const tigon_norm_bwd_problem *p, norm_walk *walk, norm_row *rows);
/* The whole backward pass. A slab has `sums` sums: dw, and with 2 also db. */
tigon_status cuda_norm_bwd(tigon_queue *queue, const tigon_norm_bwd_problem *p, int sums, norm_row *rows);

#endif
