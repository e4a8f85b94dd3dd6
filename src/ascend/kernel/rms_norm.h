/* What the launcher of rms_norm, fused_add_rms_norm and modulated_rms_norm hands to its forward kernel: a struct of 8-byte
 * fields. */
#ifndef TIGON_ASCEND_KERNEL_RMS_NORM_H
#define TIGON_ASCEND_KERNEL_RMS_NORM_H

#include <tigon/op/rms_norm.h>

#include "ascend/kernel/channels.h"

typedef struct rms_norm_fwd_arguments {
  walk w;
  gm_space space;
  gm_rows x, y;
  gm_rows residual, sum; /* fused_add_rms_norm: sum = x + residual takes x's place; data NULL without */
  gm_rows z;             /* the gate of rms_norm; data NULL without */
  gm_rows q;             /* bytes in the place of y; data NULL without */
  grouping groups;       /* modulated_rms_norm: rows that share a scale; else all of them */
  gm_space groups_space; /* rows of scale and shift, one for each group */
  gm_rows scale, shift;  /* modulated_rms_norm; data NULL without */
  gm_ptr weight, rstd;   /* may be NULL */
  gm_ptr q_scale;        /* [rows] f32, with q */
  gm_ptr partials;       /* [rows, splits] f32, when parts come apart */
  int64_t dtype, w_dtype, scale_dtype, shift_dtype, q_dtype, casting, parts;
  float eps, w_offset;
} rms_norm_fwd_arguments;

void rms_norm_fwd(ub_arena *ub, const void *arguments);

#endif
