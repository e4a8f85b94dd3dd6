#ifndef TIGON_OPENCL_KERNEL_COPY_H
#define TIGON_OPENCL_KERNEL_COPY_H

#include "shared.h"

enum { COPY_BYTES = 16 };

typedef struct copy_numbers {
  int64_t packs; /* COPY_BYTES each */
} copy_numbers;

/* Rows of 16-bit words. */
typedef struct copy_rows_numbers {
  int64_t rows, words, to_pitch, from_pitch;
} copy_rows_numbers;

#endif
