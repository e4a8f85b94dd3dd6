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
    const int64_t n = least(a->chunk, a->cols - c), size = dtype_bytes(a->dtype), filled = round_up(n, 8);
    v_duplicate_f32(sum, 0, a->chunk);
    sync_pipe(PIPE_V);
    for (int64_t i = 0; i < a->count; ++i) {
      in_begin(&in);
      load_f32(ring_now(&in), a->slabs + (i * a->step + c) * 4, 1, n);
      in_ready(&in);
      v_add_f32(sum, sum, ring_now(&in), filled);
      sync_pipe(PIPE_V);
      in_done(&in);
    }
    out_begin(&out);
    if (a->accumulate) {
      in_begin(&before);
      load(a->dtype, before.start, a->to + c * size, 1, n);
      in_ready(&before);
      const ub_f32 old = a->dtype == TIGON_F32 ? before.start : out.start;
      if (a->dtype != TIGON_F32) widen(a->dtype, old, before.start, filled);
      v_add_f32(sum, sum, old, filled);
      sync_pipe(PIPE_V);
      in_done(&before);
    }
    if (a->dtype == TIGON_F32)
      v_mul_scalar_f32(out.start, sum, 1, filled);
    else
      narrow(a->dtype, out.start, sum, filled);
    sync_pipe(PIPE_V);
    out_ready(&out);
    store(a->dtype, a->to + c * size, out.start, 1, n);
    out_done(&out);
  }
  in_close(&in);
  in_close(&before);
  out_close(&out);
}
