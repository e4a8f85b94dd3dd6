/* What poly_norm's launcher and kernels agree on. */
#ifndef TIGON_CUDA_POLY_NORM_H
#define TIGON_CUDA_POLY_NORM_H

#include "problem/norm.h"

enum {
  POLY_THREADS = 512, /* of a block, at most */
  POLY_BLOCK = 128,   /* of a block whose teams are warps */
  POLY_PACKS = 4,     /* that a thread holds of a row */
  POLY_SUMS = TIGON_POLY + 1,
};

/* A team of threads has a row: a warp, or the block. */
typedef struct poly_walk {
  int team;
  int64_t teams; /* of all blocks; each adds its rows' sums up in a slab of POLY_SUMS */
} poly_walk;

#endif
