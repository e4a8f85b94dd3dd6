/* What the launcher and the kernels of topk_divergence agree on. */
#ifndef TIGON_CUDA_TOPK_DIVERGENCE_H
#define TIGON_CUDA_TOPK_DIVERGENCE_H

#include "problem/loss.h"

enum {
  TOPK_THREADS = 512, /* the block of a row, at most */
  TOPK_WINDOW = 8192, /* columns whose entries are in shared memory together, four bytes each */
  TOPK_GROUP = 16     /* packs or elements of a thread that are summed in f32 */
};

typedef struct topk_walk {
  int64_t first_row; /* the first row of the launch */
  bool backward;
} topk_walk;

#endif
