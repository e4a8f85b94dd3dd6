/* What the launcher of preference_loss hands to its kernel. */
#ifndef TIGON_ASCEND_KERNEL_PREFERENCE_LOSS_H
#define TIGON_ASCEND_KERNEL_PREFERENCE_LOSS_H

#include "ascend/aicore.h"

/* The fields have 8 bytes, or are pairs of f32. Absent tensors are NULL. */
typedef struct preference_loss_arguments {
  gm_ptr logps, ref, counts, labels, shift, denominator, nll_logps, nll_counts;
  gm_ptr loss, pair_loss, rewards, dlogps, dnll_logps, accuracy, margin;
  int64_t kind, sequences, items, nll_sequences, shifts;
  int64_t counts_dtype, labels_dtype, nll_dtype;
  float beta, label_smoothing, gamma, tau, nll_weight, unused;
  float weight[2];
} preference_loss_arguments;

void preference_loss(ub_arena *ub, const void *arguments);

#endif
