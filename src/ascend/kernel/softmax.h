/* What the launcher of softmax hands to its kernel. */
#ifndef TIGON_ASCEND_KERNEL_SOFTMAX_H
#define TIGON_ASCEND_KERNEL_SOFTMAX_H

#include "ascend/kernel/reduce.h"

typedef struct softmax_fwd_arguments {
  walk w;
  gm_space space;
  gm_rows x, y;
  gm_rows mask;    /* data NULL: none */
  gm_ptr partials; /* [2, rows, splits] f32, when parts come apart: the largest score, the sum of exponentials */
  int64_t dtype, mask_dtype, parts;
  int64_t causal, tokens; /* row r is query r % tokens */
  float scale, unused;
} softmax_fwd_arguments;

void softmax_fwd(ub_arena *ub, const void *arguments);
void softmax_bwd(ub_arena *ub, const void *arguments);

#endif
