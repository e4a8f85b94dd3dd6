/* Copies within the device's memory: what benchmarks hold others against, and what composites move. */
#ifndef TIGON_CUDA_COPY_H
#define TIGON_CUDA_COPY_H

#include <stdint.h>

#include <tigon/base.h>

enum { COPY_THREADS = 512, COPY_EACH = 4 }; /* packs of 16 bytes, or elements of 2, of a thread */

/* Parameters of copy_rows_*: a row is copied in `parts` blocks. Pitches in bytes. */
typedef struct copy_rows {
  char *to;
  const char *from;
  int64_t to_pitch, from_pitch, bytes;
  unsigned parts;
} copy_rows;

#ifndef __CUDACC__
#include "cuda/cuda.h"
/* tigon_backend.stream and .copy_rows. */
tigon_status cuda_stream(tigon_queue *queue, void *to, const void *from, size_t bytes);
tigon_status cuda_copy_rows(tigon_queue *queue, void *to, size_t to_pitch, const void *from, size_t from_pitch,
                            size_t bytes, int64_t rows);
#endif

#endif
