/* What the launcher of divergence hands to its kernel. */
#ifndef TIGON_ASCEND_KERNEL_DIVERGENCE_H
#define TIGON_ASCEND_KERNEL_DIVERGENCE_H

#include <tigon/op/divergence.h>

#include "ascend/kernel/cross_entropy.h"

enum { DIVERGENCE_STATS = 3 }; /* words a row */

/* Of 8-byte fields, or pairs of f32. Absent tensors are NULL. */
typedef struct divergence_arguments {
  walk w;
  gm_space space;
  gm_rows input, target, dinput;
  label_rule rule;
  gm_ptr labels, token_scale, dloss; /* [rows], [rows] f32, [1] or [rows] f32 */
  gm_ptr inverse;                    /* [1] f32, of a mean with labels or a denominator */
  gm_ptr token_loss;                 /* out [rows] f32, of forward */
  gm_ptr stats;                      /* [rows, 3] f32: out in forward, in in backward */
  int64_t dtype, kind, input_is, target_is, backward;
  int64_t dloss_rows; /* one a row */
  float inverse_temperature, beta, rest, log_beta, log_rest, odds;
  float soft, unused; /* the loss's factor */
  twofold grad;       /* what every gradient is multiplied by */
} divergence_arguments;

void divergence(ub_arena *ub, const void *arguments);

#endif
