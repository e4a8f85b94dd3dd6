/* What the launcher of preference_loss hands to the kernels of its tokens. */
#ifndef TIGON_ASCEND_KERNEL_PREFERENCE_TOKENS_H
#define TIGON_ASCEND_KERNEL_PREFERENCE_TOKENS_H

#include "ascend/kernel/sequences.h"

/* Absent tensors are NULL. */
typedef struct preference_sums_arguments {
  token_sequences of;
  gm_ptr logprob; /* [tokens] */
  gm_ptr sums;    /* out [sequences] f32 */
  gm_ptr counts;  /* out [sequences] i64: tokens that count */
  gm_ptr flags;   /* out [blocks] i32: 1 where segments are out of order */
} preference_sums_arguments;

typedef struct preference_slopes_arguments {
  token_sequences of;
  gm_ptr dlogps, counts; /* [sequences] f32 and i64 */
  gm_ptr dloss;          /* [1] */
  gm_ptr dlogprob;       /* out [tokens] */
  int64_t nll_sequences;
  float nll_weight, unused;
} preference_slopes_arguments;

void preference_sums(ub_arena *ub, const void *arguments);
void preference_slopes(ub_arena *ub, const void *arguments);

#endif
