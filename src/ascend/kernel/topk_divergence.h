/* What the launcher of topk_divergence hands to its kernel. */
#ifndef TIGON_ASCEND_KERNEL_TOPK_DIVERGENCE_H
#define TIGON_ASCEND_KERNEL_TOPK_DIVERGENCE_H

#include <tigon/op/topk_divergence.h>

#include "ascend/kernel/loss_rows.h"

/* The fields have 8 bytes, or are pairs of f32. Absent tensors are NULL. */
typedef struct topk_divergence_arguments {
  walk w;
  gm_space space;
  gm_rows input, target, ids, dinput; /* ids: of 4-byte words */
  loss_rows rows;
  gm_ptr flags; /* [blocks] i32: 1 where an id was out of range; may be NULL */
  int64_t dtype, target_dtype, id_dtype, k, kind, target_is;
  int64_t tail;             /* p may have one */
  int64_t all_out_of_range; /* without columns, when k is given as 0 */
  int64_t vocab;            /* ids are below it; columns may be those of a panel */
  /* A head's input is capped first; a logit is then multiplied by map.times. hard_map: the same in the cross entropy. */
  logit_map map, hard_map;
  float inverse_temperature, beta;  /* the target's numbers */
  twofold rest, log_beta, log_rest; /* 1 - beta, and logarithms; of jsd */
  twofold least_tail;
} topk_divergence_arguments;

void topk_divergence(ub_arena *ub, const void *arguments);

#endif
