/* The second stage of a gradient over rows: slabs are added up in index order. A work-item has a vector of columns, and of a group's slabs
 * every PARTS-th; the parts are added in order. A slab is read once. */
#include "common.cl"
#include "column_sum.h"

#define ITEMS (GROUP < COLUMN_SUM_ITEMS ? GROUP : COLUMN_SUM_ITEMS)
#define PARTS (GROUP / ITEMS)
enum { AHEAD = 8 };

__kernel void column_sum(TENSOR(slabs), TENSOR(to), const column_sum_numbers k) {
  __local vf parts[GROUP];
  const int item = (int)get_local_id(0) % ITEMS, part = (int)get_local_id(0) / ITEMS;
  const long c = ((long)get_group_id(0) * ITEMS + item) * LANES, n = k.cols - c, row = (long)get_global_id(1);
  const memory from = memory_of(slabs), out = memory_of(to);
  vf sum = 0;
  long s = n > 0 ? part : k.count;
  for (; s + (AHEAD - 1) * PARTS < k.count; s += AHEAD * PARTS) { /* all are on their way at once */
    vf of[AHEAD];
    for (int i = 0; i < AHEAD; ++i) of[i] = load_n(from, (row * k.count + s + i * PARTS) * k.step + c, F32, n);
    for (int i = 0; i < AHEAD; ++i) sum += of[i];
  }
  for (; s < k.count; s += PARTS) sum += load_n(from, (row * k.count + s) * k.step + c, F32, n);
  if (PARTS > 1) {
    parts[get_local_id(0)] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (part == 0)
      for (int i = 1; i < PARTS; ++i) sum += parts[i * ITEMS + item];
  }
  if (part > 0 || n <= 0) return;
  const long at = row_offset(&k.space, &k.to, row) + c;
  if (k.accumulate) sum += load_n(out, at, k.dtype, n);
  store_n(out, at, k.dtype, n, sum);
}
