/* The second stage of a gradient that is a sum over rows. */
#ifndef TIGON_ASCEND_KERNEL_COLUMN_SUMS_H
#define TIGON_ASCEND_KERNEL_COLUMN_SUMS_H

#include "ascend/kernel/rows.h"

typedef struct column_sums_arguments {
  gm_ptr slabs, to;                 /* [count, cols] f32, `step` elements apart; [cols] */
  int64_t count, cols, step, chunk; /* chunk: columns of a task */
  int64_t dtype, accumulate;        /* of `to`; onto what is there */
} column_sums_arguments;

void column_sums(ub_arena *ub, const void *arguments);

#endif
