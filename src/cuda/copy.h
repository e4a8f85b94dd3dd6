/* What memory can do: the kernels that benchmarks hold others against. */
#ifndef TIGON_CUDA_COPY_H
#define TIGON_CUDA_COPY_H

#include <tigon/base.h>

enum { COPY_THREADS = 512, COPY_EACH = 4 }; /* 16-byte packs of a thread */

#ifndef __CUDACC__
#include "cuda/cuda.h"
/* tigon_backend.stream. */
tigon_status cuda_stream(tigon_queue *queue, void *to, const void *from, size_t bytes);
#endif

#endif
