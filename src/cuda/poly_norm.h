/* Constants that poly_norm's launcher and kernels share. */
#ifndef TIGON_CUDA_POLY_NORM_H
#define TIGON_CUDA_POLY_NORM_H

#include "problem/norm.h"

enum {
  POLY_THREADS = 512, /* the most threads of a block, which has one row */
  POLY_PACKS = 4,     /* packs of a row that a thread holds */
  POLY_STAGES = 3,    /* rows in stages, backward */
  POLY_SUMS = TIGON_POLY + 1,
};

#endif
