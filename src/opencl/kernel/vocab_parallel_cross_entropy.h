#ifndef TIGON_OPENCL_KERNEL_VOCAB_PARALLEL_CROSS_ENTROPY_H
#define TIGON_OPENCL_KERNEL_VOCAB_PARALLEL_CROSS_ENTROPY_H

#include "loss.h"

typedef struct vocab_merge_numbers {
  int64_t rows, shards, rank; /* rank: the shard whose u smoothing takes; -1: those of all */
  label_rule rule;
  pair keep, smoothing, inverse_classes; /* keep: 1 - smoothing */
  float lse_square, unused;
} vocab_merge_numbers;

#endif
