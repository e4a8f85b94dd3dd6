/* What the launcher of divergence hands to its kernel. */
#ifndef TIGON_ASCEND_KERNEL_DIVERGENCE_H
#define TIGON_ASCEND_KERNEL_DIVERGENCE_H

#include <tigon/op/divergence.h>

#include "ascend/kernel/loss_rows.h"

/* The fields have 8 bytes, or are pairs of f32. An absent dinput's data is NULL. */
typedef struct divergence_arguments {
  walk w;
  gm_space space;
  gm_rows input, target, dinput;
  loss_rows rows;
  int64_t dtype, kind, input_is, target_is;
  int64_t target_cols; /* that the target has; those beyond have no probability */
  /* A head's input and target are capped first; a logit is then multiplied by `times`. hard_map: the input's in the cross entropy. */
  logit_map map[2], hard_map;
  float times[2];
  float beta, rest, log_beta, log_rest, odds, unused;
} divergence_arguments;

void divergence(ub_arena *ub, const void *arguments);

#endif
