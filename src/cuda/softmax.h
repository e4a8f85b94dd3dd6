/* What softmax's launcher and kernels agree on. */
#ifndef TIGON_CUDA_SOFTMAX_H
#define TIGON_CUDA_SOFTMAX_H

enum {
  SOFTMAX_PACKS = 16, /* 16 bytes each, that a thread has of a packed row: 256 KiB of rows an SM */
  SOFTMAX_OWN = 4,    /* those of them in its registers */
};

#endif
