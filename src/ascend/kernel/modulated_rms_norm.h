/* The second stage of modulated_rms_norm's gradients: from sums over the rows of each group. */
#ifndef TIGON_ASCEND_KERNEL_MODULATED_RMS_NORM_H
#define TIGON_ASCEND_KERNEL_MODULATED_RMS_NORM_H

#include "ascend/kernel/column_sums.h"

enum {
  MODULATED_SUMS = 2,      /* vectors of a slab for each group: P = the sum of dy * xhat, Q = that of dy */
  MODULATED_VECTORS = 9,   /* vectors of a task's columns that are on chip */
  MODULATED_COLUMNS = 1024 /* that a task has at most */
};

typedef struct modulated_sums_arguments {
  gm_ptr slabs;                  /* [count, MODULATED_SUMS, groups, cols] f32 */
  gm_space space;                /* a row for each group */
  gm_rows scale, dscale, dshift; /* data of the gradients NULL: not wanted */
  gm_ptr weight, dw;             /* [cols], may be NULL */
  int64_t count, cols, chunk;    /* chunk: columns of a task */
  int64_t w_dtype, scale_dtype, dw_dtype, dscale_dtype, dshift_dtype, accumulate_dw, accumulate_dscale;
  float w_offset, unused;
} modulated_sums_arguments;

AICORE int64_t modulated_chunk(int64_t cols, int64_t cores) {
  return least(round_up((cols + cores - 1) / cores, SUMS_LINE), MODULATED_COLUMNS);
}

void modulated_sums(ub_arena *ub, const void *arguments);

#endif
