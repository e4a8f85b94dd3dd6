/* relu_squared: y = max(x, 0)^2; backward dx = 2 * max(x, 0) * dy. */
#include "ascend/kernel/relu_squared.h"

/* One body: inputs x, and dy where backward is asked for. */
AICORE void relu_squared(ub_arena *ub, const pointwise_arguments *a, bool backward) {
  pointwise p = pointwise_open(ub, a, backward ? 2 : 1, 1, 0);
  for (int64_t task = block_index(); task < a->w.tasks; task += block_count()) {
    const box b = walk_task(&a->w, task);
    for (int64_t r = b.row; r < b.row_end; r += a->w.tile_rows)
      for (int64_t c = b.col; c < b.col_end; c += a->w.tile_cols) {
        const tile t = tile_of(a->dtype, least(a->w.tile_rows, b.row_end - r), least(a->w.tile_cols, b.col_end - c));
        const int64_t n = t.rows * t.pitch;
        pointwise_begin(&p, t, r, c);
        const ub_f32 out = p.result[0];
        v_max_scalar_f32(out, p.value[0], 0, n);
        sync_pipe(PIPE_V);
        if (backward) {
          v_mul_scalar_f32(out, out, 2, n); /* exact, so that the product is rounded once */
          sync_pipe(PIPE_V);
        }
        v_mul_f32(out, out, backward ? p.value[1] : out, n);
        sync_pipe(PIPE_V);
        pointwise_end(&p, t, r, c);
      }
  }
  pointwise_close(&p);
}

AICORE_KERNEL(relu_squared_fwd, pointwise_arguments) { relu_squared(ub, a, false); }
AICORE_KERNEL(relu_squared_bwd, pointwise_arguments) { relu_squared(ub, a, true); }
