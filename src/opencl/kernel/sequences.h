#ifndef TIGON_OPENCL_KERNEL_SEQUENCES_H
#define TIGON_OPENCL_KERNEL_SEQUENCES_H

#include "loss.h"

/* Sequences of tokens and which tokens count. */
typedef struct token_sequences {
  int64_t count, tokens, length; /* length: of each sequence without segments */
  label_rule mask;
  int32_t segments_dtype, unused;
} token_sequences;

#endif
