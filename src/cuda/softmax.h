/* What softmax's launcher and kernels agree on. */
#ifndef TIGON_CUDA_SOFTMAX_H
#define TIGON_CUDA_SOFTMAX_H

enum {
  SOFTMAX_THREADS = 256,       /* of a block, where that is enough */
  SOFTMAX_MOST_THREADS = 1024, /* of a block */
  SOFTMAX_WALK_THREADS = 512,  /* of a block that walks its row */
};

#endif
