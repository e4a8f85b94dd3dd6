#include "ascend/kernel/column_sums.h"

/* to[c] = the sum over slabs in index order, onto what is there when asked. */
AICORE_KERNEL(column_sums, column_sums_arguments) {
  ring in = ring_of(ub, 0, 2, a->chunk * 4), before = ring_of(ub, 2, 1, a->chunk * 4),
       out = ring_of(ub, 0, 1, a->chunk * 4);
  const ub_f32 sum = ub_alloc_f32(ub, a->chunk);
  in_open(&in);
  in_open(&before);
  out_open(&out);
  for (int64_t c = block_index() * a->chunk; c < a->cols; c += block_count() * a->chunk) {
    const int64_t n = least(a->chunk, a->cols - c);
    add_slabs(&in, sum, a->slabs + c * 4, a->count, a->step, n);
    put_sums(&before, &out, sum, a->to + c * dtype_bytes(a->dtype), a->dtype, a->accumulate, n);
  }
  in_close(&in);
  in_close(&before);
  out_close(&out);
}
