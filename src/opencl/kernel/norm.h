#ifndef TIGON_OPENCL_KERNEL_NORM_H
#define TIGON_OPENCL_KERNEL_NORM_H

#include "shared.h"

enum { CASTING_LLAMA = 0, CASTING_GEMMA = 1, CASTING_NONE = 2 }; /* as tigon_casting */

/* Row r takes row r / share of scale and shift, which have groups.rows. */
typedef struct norm_fwd_numbers {
  tigon_row_space space, groups;
  int64_t cols, share;
  cl_pitch x, residual, s, y, z, scale, shift;
  int32_t w_dtype, scale_dtype, shift_dtype, casting;
  float eps, w_offset;
  int32_t is_i8, unused; /* quantised */
} norm_fwd_numbers;

/* Each of groups.rows runs of `share` rows is cut in `parts`; `sums` vectors a slab. */
typedef struct norm_bwd_numbers {
  tigon_row_space space, groups;
  int64_t cols, share, parts, sums;
  cl_pitch dy, x, dx, ds, z, dz, scale, dscale, dshift;
  int32_t w_dtype, scale_dtype, dscale_dtype, dshift_dtype, casting, accumulate;
  float w_offset;
  int32_t unused;
} norm_bwd_numbers;

#endif
