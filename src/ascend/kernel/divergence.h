/* What the launcher of divergence hands to its kernel. */
#ifndef TIGON_ASCEND_KERNEL_DIVERGENCE_H
#define TIGON_ASCEND_KERNEL_DIVERGENCE_H

#include <tigon/op/divergence.h>

#include "ascend/kernel/loss_rows.h"

/* Of 8-byte fields, or pairs of f32. An absent dinput's data is NULL. */
typedef struct divergence_arguments {
  walk w;
  gm_space space;
  gm_rows input, target, dinput;
  loss_rows rows;
  int64_t dtype, kind, input_is, target_is;
  float inverse_temperature, beta, rest, log_beta, log_rest, odds;
} divergence_arguments;

void divergence(ub_arena *ub, const void *arguments);

#endif
