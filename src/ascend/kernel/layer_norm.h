/* What the launchers of layer_norm and group_norm hand to their forward kernel. */
#ifndef TIGON_ASCEND_KERNEL_LAYER_NORM_H
#define TIGON_ASCEND_KERNEL_LAYER_NORM_H

#include "ascend/kernel/channels.h"

typedef struct layer_norm_fwd_arguments {
  walk w;
  gm_space space;
  gm_rows x, y;
  grouping groups;
  gm_ptr weight, bias; /* [groups, channels], may be NULL */
  gm_ptr mean, rstd;   /* [batch, groups], may be NULL */
  gm_ptr partials;     /* [rows, MOMENT_WORDS, splits] f32, when parts come apart */
  int64_t dtype, w_dtype, b_dtype, parts;
  float eps, unused;
} layer_norm_fwd_arguments;

void layer_norm_fwd(ub_arena *ub, const void *arguments);

#endif
