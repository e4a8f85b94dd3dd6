/* What sparsemax's launcher and kernels agree on. */
#ifndef TIGON_CUDA_SPARSEMAX_H
#define TIGON_CUDA_SPARSEMAX_H

enum {
  SPARSEMAX_FEW = 8,    /* elements of a thread that may be listed */
  SPARSEMAX_PACKS = 16, /* 16 bytes each, that a thread has of a packed row */
  SPARSEMAX_OWN =
      5, /* those of them in its registers: so an SM has room for four blocks of 256 threads with their lists */
};

#endif
