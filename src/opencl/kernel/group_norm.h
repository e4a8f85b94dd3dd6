#ifndef TIGON_OPENCL_KERNEL_GROUP_NORM_H
#define TIGON_OPENCL_KERNEL_GROUP_NORM_H

#include "shared.h"

/* Elements from one batch, and one channel, to the next. */
typedef struct group_pitch {
  int64_t batch, channel;
} group_pitch;

/* Rows of a group: `channels` channels of `run` elements. Backward: the batches are in `slabs` ranges. */
typedef struct group_numbers {
  int64_t batch, groups, channels, run, slabs;
  group_pitch dy, x, out;
  int32_t w_dtype, b_dtype;
  float eps;
  int32_t unused;
} group_numbers;

#endif
