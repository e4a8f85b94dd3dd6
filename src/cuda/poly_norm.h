/* What poly_norm's launcher and kernels agree on. */
#ifndef TIGON_CUDA_POLY_NORM_H
#define TIGON_CUDA_POLY_NORM_H

#include "problem/norm.h"

enum {
  POLY_THREADS = 512, /* of a block, which has a row, at most */
  POLY_PACKS = 4,     /* that a thread holds of a row */
  POLY_STAGES = 3,    /* of rows backward */
  POLY_SUMS = TIGON_POLY + 1,
};

#endif
