/* What softmax's launcher and kernels agree on. */
#ifndef TIGON_CUDA_SOFTMAX_H
#define TIGON_CUDA_SOFTMAX_H

enum {
  SOFTMAX_THREADS = 256,       /* of a block, where that is enough */
  SOFTMAX_MOST_THREADS = 1024, /* of a block */
  SOFTMAX_WIDE_THREADS = 512,  /* of a block that walks its row */
  SOFTMAX_PACKS = 16,          /* 16 bytes each, that a thread has of a packed row: 256 KiB of rows an SM */
  SOFTMAX_OWN = 4,             /* those of them in its registers */
};

#endif
