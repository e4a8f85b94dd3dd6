#ifndef TIGON_OPENCL_KERNEL_EMBEDDING_H
#define TIGON_OPENCL_KERNEL_EMBEDDING_H

#include "shared.h"

enum {
  EMBEDDING_DIGIT_BITS = 4, /* the sort's, in a pass */
  EMBEDDING_DIGITS = 1 << EMBEDDING_DIGIT_BITS,
  EMBEDDING_PANEL = 256, /* columns of a group in the sums */
};

typedef struct embedding_fwd_numbers {
  tigon_row_space space;
  cl_pitch y;
  int64_t cols, vocab, table_pitch;
  int32_t idx_dtype;
} embedding_fwd_numbers;

/* A key is an index, or vocab where an index has no gradient. */
typedef struct embedding_sort_numbers {
  int64_t rows, vocab, padding_idx;
  int64_t sorters;                 /* work-items, each of which has a range of the positions */
  int32_t idx_dtype, shift, first; /* first: positions are in order yet */
} embedding_sort_numbers;

typedef struct embedding_bwd_numbers {
  tigon_row_space space;
  cl_pitch dy;
  int64_t cols, vocab, padding_idx;
  int64_t panel; /* columns of a work-item, or of a group */
  int32_t idx_dtype, dtable_dtype, accumulate;
} embedding_bwd_numbers;

#endif
