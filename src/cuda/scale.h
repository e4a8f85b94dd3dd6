/* What scale's launcher and kernels agree on. */
#ifndef TIGON_CUDA_SCALE_H
#define TIGON_CUDA_SCALE_H

enum {
  SCALE_THREADS = 256,
  SCALE_BLOCKS = 4, /* on an SM */
  SCALE_EACH = 4,   /* packs or elements of a thread that are on their way together */
};

#endif
