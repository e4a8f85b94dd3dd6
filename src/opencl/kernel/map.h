#ifndef TIGON_OPENCL_KERNEL_MAP_H
#define TIGON_OPENCL_KERNEL_MAP_H

#include "shared.h"

enum { MAP_TENSORS = 5, MAP_ITEM_EACH = 64, MAP_GROUP_EACH = 4 }; /* vectors of a work-item, alone and of a group */

typedef struct map_numbers {
  tigon_row_space space;
  int64_t cols;
  cl_pitch pitch[MAP_TENSORS];                  /* inputs come first */
  float gate_mult, down_mult, limit, up_offset; /* swiglu; limit: Inf without a clamp */
  int32_t in_place, unused;                     /* scale: y is x */
} map_numbers;

#endif
