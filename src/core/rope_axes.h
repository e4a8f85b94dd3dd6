/* Which axis of position a pair of rope turns by. */
#ifndef TIGON_CORE_ROPE_AXES_H
#define TIGON_CORE_ROPE_AXES_H

#include <stdint.h>

#include "core/shared.h"

enum { TIGON_ROPE_AXES = 3 }; /* time, height, width */

/* The pairs of an axis, fewer than 2^31: first, first + step, .. below end. step is 1 or 3, as a division by a constant is
 * two products. */
typedef struct tigon_rope_pairs {
  int64_t first, end, step;
} tigon_rope_pairs;

/* The axis of a pair. of[1] and of[2] are the pairs of height and of width. Time has the others, or all where there is one axis. */
TIGON_SHARED int tigon_rope_axis(const tigon_rope_pairs of[TIGON_ROPE_AXES], int axes, int64_t pair) {
  for (int axis = 1; axis < axes; ++axis)
    if (pair >= of[axis].first && pair < of[axis].end &&
        (of[axis].step == 1 || (uint32_t)(pair - of[axis].first) % 3 == 0))
      return axis;
  return 0;
}

#endif
