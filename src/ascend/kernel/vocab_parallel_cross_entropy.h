/* What the launcher of vocab_parallel_cross_entropy's merge hands to its kernel: a struct of 8-byte fields, or pairs of f32. */
#ifndef TIGON_ASCEND_KERNEL_VOCAB_PARALLEL_CROSS_ENTROPY_H
#define TIGON_ASCEND_KERNEL_VOCAB_PARALLEL_CROSS_ENTROPY_H

#include "ascend/kernel/cross_entropy.h"

typedef struct vocab_merge_arguments {
  walk w; /* rows, and shards as columns */
  label_rule rule;
  gm_ptr stats, labels;              /* [shards, rows, STAT_WORDS] f32, [rows] */
  gm_ptr token_loss;                 /* [rows] f32 */
  gm_ptr lse, z_loss, entropy;       /* the same; may be NULL */
  int64_t shards, rank;              /* rank: the shard whose u smoothing takes; -1: those of all */
  float keep, smoothing;             /* 1 - smoothing, smoothing */
  float inverse_classes, lse_square; /* 1 / the classes that smoothing is spread over */
} vocab_merge_arguments;

void vocab_parallel_cross_entropy_merge(ub_arena *ub, const void *arguments);

#endif
