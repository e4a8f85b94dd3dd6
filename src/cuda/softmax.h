/* What softmax's launcher and kernels agree on. */
#ifndef TIGON_CUDA_SOFTMAX_H
#define TIGON_CUDA_SOFTMAX_H

enum {
  SOFTMAX_THREADS = 256,       /* of a block, where that is enough */
  SOFTMAX_MOST_THREADS = 1024, /* of a block */
  SOFTMAX_WIDE_THREADS = 512,  /* of a block that walks its row, or has 8 packs of it a thread */
};

#endif
