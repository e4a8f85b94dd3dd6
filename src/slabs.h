/* How backends without a planner deal out rows: ranges of them, and slabs, which are a range's sums over its rows. */
#ifndef TIGON_SLABS_H
#define TIGON_SLABS_H

#include <tigon/base.h>

#include "core/shared.h"

/* Items [*begin, *end) of range `index` of `count`: contiguous, ragged by at most one, covering [0, items). */
TIGON_SHARED void tigon_range(int64_t items, int64_t count, int64_t index, int64_t *begin, int64_t *end) {
  const int64_t base = items / count, extra = items % count;
  *begin = index * base + (index < extra ? index : extra);
  *end = *begin + base + (index < extra ? 1 : 0);
}

/* What one task covers of [rows, columns]. */
typedef struct tigon_box {
  int64_t row_begin, row_end, col_begin, col_end;
} tigon_box;

/* Slabs of a sum over rows: a range of rows each, as many as there are tasks at most. */
TIGON_SHARED int64_t tigon_slabs(int64_t rows, int64_t tasks) { return rows < tasks ? rows : tasks; }

/* The same for rows in groups: ranges of the batch, of which each group has as many. */
TIGON_SHARED int64_t tigon_group_slabs(int64_t batch, int64_t groups, int64_t tasks) {
  const int64_t each = groups < tasks ? tasks / groups : 1;
  return tigon_slabs(batch, each);
}

/* Tasks that share a huge row, each some of its `parts`, where there are fewer ranges of rows than tasks. */
TIGON_SHARED int64_t tigon_splits(int64_t parts, int64_t ranges, int64_t tasks) {
  const int64_t share = ranges > 0 ? tasks / ranges : 1, most = share < parts ? share : parts;
  return most > 1 ? most : 1;
}

/* Bytes of a workspace. */
TIGON_SHARED int64_t tigon_pad(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* Bytes of `slabs` slabs of `vectors` sums of `cols` columns in f32, a multiple of 64; 2^63 - 64 when they are more. */
TIGON_SHARED int64_t tigon_slab_bytes(int64_t slabs, int64_t vectors, int64_t cols) {
  const int64_t most = INT64_MAX - 63, sums = slabs * vectors;
  return sums > 0 && cols > most / 4 / sums ? most / 64 * 64 : tigon_pad(4 * sums * cols);
}

#endif
