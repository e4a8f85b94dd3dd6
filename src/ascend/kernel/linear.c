/* linear, but for its matrix products. */
#include "ascend/kernel/linear.h"

AICORE void load_term(ub_f32 to, const linear_term *x, tile t, int64_t rows, int64_t r, int64_t c) {
  const gm_space space = {rows, 1, rows, 1};
  const gm_rows from = {x->data, {0, 0, x->pitch}, 1};
  load_tile(x->dtype, to, &space, &from, t, r, c);
}

AICORE_KERNEL(linear_sum, linear_sum_arguments) {
  ring in = ring_of(ub, 0, 2, LINEAR_TILE * 4), out = ring_of(ub, 0, 2, LINEAR_TILE * 4);
  const ub_f32 sum = ub_alloc_f32(ub, LINEAR_TILE), wide = ub_alloc_f32(ub, LINEAR_TILE);
  const int64_t tile_rows = linear_tile_rows(a->cols), tile_cols = least(a->cols, LINEAR_TILE);
  const int64_t across = (a->cols - 1) / tile_cols + 1, tiles = across * ((a->rows - 1) / tile_rows + 1);
  const gm_space space = {a->rows, 1, a->rows, 1};
  const gm_rows to = {a->to.data, {0, 0, a->to.pitch}, 1};
  in_open(&in);
  out_open(&out);
  for (int64_t i = block_index(); i < tiles; i += block_count()) {
    const int64_t r = i / across * tile_rows, c = i % across * tile_cols;
    const int64_t rows = least(tile_rows, a->rows - r), cols = least(tile_cols, a->cols - c);
    const tile result = tile_of(a->to.dtype, rows, cols);
    v_duplicate_f32(sum, 0, LINEAR_TILE);
    sync_pipe(PIPE_V);
    for (int64_t j = 0; j < a->terms; ++j) {
      const tile t = tile_of(a->term[j].dtype, rows, cols);
      in_begin(&in);
      load_term(ring_now(&in), &a->term[j], t, a->rows, r, c);
      in_ready(&in);
      v_add_f32(sum, sum, values_of(a->term[j].dtype, wide, ring_now(&in), t), t.rows * t.pitch);
      sync_pipe(PIPE_V);
      in_done(&in);
    }
    out_begin(&out);
    if (a->to.dtype == TIGON_F32)
      v_mul_scalar_f32(ring_now(&out), sum, 1, rows * result.pitch);
    else
      narrow(a->to.dtype, ring_now(&out), sum, rows * result.pitch);
    sync_pipe(PIPE_V);
    out_ready(&out);
    store_tile(a->to.dtype, &space, &to, ring_now(&out), result, r, c);
    out_done(&out);
  }
  in_close(&in);
  out_close(&out);
}

AICORE_KERNEL(linear_column_sums, linear_column_sums_arguments) {
  ring in = ring_of(ub, 0, 2, LINEAR_TILE * 4), out = ring_of(ub, 0, 2, LINEAR_PANEL * 4);
  const ub_f32 sum = ub_alloc_f32(ub, LINEAR_PANEL), wide = ub_alloc_f32(ub, LINEAR_TILE);
  const int64_t panels = (a->cols - 1) / LINEAR_PANEL + 1;
  in_open(&in);
  out_open(&out);
  for (int64_t task = block_index(); task < panels * a->ranges; task += block_count()) {
    const int64_t range = task / panels, c = task % panels * LINEAR_PANEL, cols = least(LINEAR_PANEL, a->cols - c);
    const int64_t end = range_begin(a->rows, a->ranges, range + 1), tile_rows = linear_tile_rows(cols);
    v_duplicate_f32(sum, 0, LINEAR_PANEL);
    sync_pipe(PIPE_V);
    for (int64_t r = range_begin(a->rows, a->ranges, range); r < end; r += tile_rows) {
      const tile t = tile_of(a->x.dtype, least(tile_rows, end - r), cols);
      in_begin(&in);
      load_term(ring_now(&in), &a->x, t, a->rows, r, c);
      in_ready(&in);
      add_column_sums(sum, values_of(a->x.dtype, wide, ring_now(&in), t), t);
      in_done(&in);
    }
    if (range == 0 && a->more) {
      in_begin(&in);
      load_f32(ring_now(&in), a->more + c * 4, 1, cols);
      in_ready(&in);
      v_add_f32(sum, sum, ring_now(&in), cols);
      sync_pipe(PIPE_V);
      in_done(&in);
    }
    out_begin(&out);
    v_mul_scalar_f32(ring_now(&out), sum, 1, cols);
    out_ready(&out);
    store_f32(a->slabs + (range * a->cols + c) * 4, ring_now(&out), 1, cols);
    out_done(&out);
  }
  in_close(&in);
  out_close(&out);
}
