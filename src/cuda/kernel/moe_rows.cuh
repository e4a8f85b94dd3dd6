/* Where tiles, slots and their rows lie. */
#ifndef TIGON_CUDA_KERNEL_MOE_ROWS_CUH
#define TIGON_CUDA_KERNEL_MOE_ROWS_CUH

#include "cuda/fused_moe.h"
#include "cuda/kernel/element.cuh"

/* Elements from the tensor's first to the row of a position. */
__device__ static inline int64_t moe_row_offset(const moe_order &o, const tigon_row_space &space, const moe_rows &of,
                                                int position) {
  if (!of.of_tokens) return (int64_t)position * of.rows.pitch[2];
  return tigon_row_offset(&space, &of.rows, o.token[position]);
}

/* The expert of slot s, or `experts`. */
__device__ static inline int moe_expert_of(const moe_order &o, int s) {
  const int64_t e = load_index(o.idx, s, o.idx_dtype);
  return e >= 0 && e < o.experts ? (int)e : o.experts;
}

/* A tile of a product: rows [row, row + rows) and columns from `col` on; row is a position, or MOE_WEIGHTS: a row of the matrix,
 * and the terms are the positions [begin, end). */
struct moe_area {
  int expert, row, rows, col, begin, end;
};

/* Tile `index`; false beyond the last one. */
template <int USE, int ROWS, int COLUMNS>
__device__ inline bool moe_area_of(const moe_product &q, int index, moe_area *area) {
  const int across = (int)((q.n + COLUMNS - 1) / COLUMNS), line = index / across,
            col = (index - line * across) * COLUMNS;
  if (USE == MOE_WEIGHTS) {
    const int down = (int)((q.m + ROWS - 1) / ROWS), expert = line / down, row = (line - expert * down) * ROWS;
    const int rows = (int)q.m - row;
    if (expert >= q.order.experts) return false;
    *area = moe_area{expert, row, min(rows, ROWS), col, q.order.first[expert], q.order.first[expert + 1]};
    return true;
  }
  if (line >= *q.order.tile_count) return false;
  const moe_tile tile = q.order.tiles[line];
  const int rows = q.order.first[tile.expert + 1] - tile.first;
  *area = moe_area{tile.expert, tile.first, min(rows, ROWS), col, 0, 0};
  return true;
}

#endif
