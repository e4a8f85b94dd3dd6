/* How rows are distributed to threads that keep them in registers. A row belongs to a team or to the teams of a cluster. A row
 * wider than their registers is walked. */
#ifndef TIGON_CUDA_ROW_CUT_H
#define TIGON_CUDA_ROW_CUT_H

enum {
  ROW_THREADS = 256,       /* threads of a block, where that is enough */
  ROW_MOST_THREADS = 1024, /* the most threads of a block */
  ROW_WIDE_THREADS = 512,  /* threads of a block that walks its row */
};

#ifndef __CUDACC__
#include "cuda/cuda.h"

/* By a thread's share of a row: 1, 2 or 4 packs, or 8 or 16 single elements. If a cluster's registers do not hold the row, a
 * thread walks over its share. */
typedef struct row_kernels {
  cuda_kernel packs_1[3], packs_2[3], packs_4[3], any_8[3], any_16[3], walk[3], any[3];
} row_kernels;
#define ROW_KERNELS(op, entry)                                                                        \
  {                                                                                                   \
    .packs_1 = CUDA_KERNELS(op, op##_##entry##_1), .packs_2 = CUDA_KERNELS(op, op##_##entry##_2),     \
    .packs_4 = CUDA_KERNELS(op, op##_##entry##_4), .any_8 = CUDA_KERNELS(op, op##_##entry##_any_8),   \
    .any_16 = CUDA_KERNELS(op, op##_##entry##_any_16), .walk = CUDA_KERNELS(op, op##_##entry##_walk), \
    .any = CUDA_KERNELS(op, op##_##entry##_any),                                                      \
  }

/* Threads of a row: those of a team, of each block of a cluster. They depend on the width alone, so that a row has the same bits in
 * any batch. */
typedef struct row_cut {
  cuda_kernel *kernel;
  int team, cluster, bytes; /* bytes: shared memory per block */
  const char *held;         /* docs/glossary.md */
} row_cut;

/* Elements of a pack where rows of `cols` of all these tensors are whole packs, else 1. */
#define cuda_row_lanes(space, cols, dtype, ...) \
  cuda_row_lanes_of(space, cols, dtype, (const tigon_rows *const[]){__VA_ARGS__, NULL})
int64_t cuda_row_lanes_of(const tigon_row_space *space, int64_t cols, tigon_dtype dtype,
                          const tigon_rows *const tensors[]);
/* What a thread has of a row of `items` packs, or elements, and so the threads that the row wants. */
int cuda_row_each(int64_t items, int64_t lanes);
row_cut cuda_cut_row(const cuda_device *device, row_kernels *k, int64_t cols, int64_t lanes);
/* A kernel of (problem, team, first row), in as many launches as the grid's limit wants. */
tigon_status cuda_launch_rows(tigon_queue *queue, const row_cut *cut, tigon_dtype dtype, int64_t rows,
                              const void *problem);
#endif

#endif
