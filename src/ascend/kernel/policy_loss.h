/* What the launcher of policy_loss hands to its kernels. */
#ifndef TIGON_ASCEND_KERNEL_POLICY_LOSS_H
#define TIGON_ASCEND_KERNEL_POLICY_LOSS_H

#include "ascend/kernel/sequences.h"

/* What a block leaves of its sequences, 4-byte words: sums of two f32, then i32. */
enum {
  POLICY_LOSS,
  POLICY_KL = 2,
  POLICY_ENTROPY = 4,
  POLICY_RATIO = 6,
  POLICY_LOW = 8, /* i32 from here on: tokens that are clipped, and whether segments are out of order */
  POLICY_HIGH,
  POLICY_ERROR,
  POLICY_WORDS = 16,
};

/* The fields have 8 bytes, or are pairs of f32. Absent tensors are NULL. */
typedef struct policy_loss_arguments {
  token_sequences of;
  gm_ptr logprob, advantage, old, ref, entropy, ratio, denominator, dloss;
  gm_ptr token_loss, dlogprob, dentropy;
  gm_ptr counted; /* [count_blocks, TOTAL_WORDS], of how many tokens count; NULL: all do */
  gm_ptr totals;  /* [blocks, POLICY_WORDS] */
  int64_t count_blocks, kind;
  int64_t sequence_level, token_advantage, token_ratio, kl_bias_corrected;
  float eps_low, eps_high, delta, kl_weight, entropy_weight, unused;
  float tau[2], k[2], lambda[2];
  twofold max_length;
} policy_loss_arguments;

/* What the totals come to. */
typedef struct policy_loss_join_arguments {
  gm_ptr counted, totals;
  gm_ptr loss, kl, clip_low, clip_high, mean_entropy, mean_ratio, error;
  int64_t blocks, count_blocks, tokens;
  float entropy_weight, unused;
} policy_loss_join_arguments;

void policy_loss(ub_arena *ub, const void *arguments);
void policy_loss_join(ub_arena *ub, const void *arguments);

#endif
