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

/* Tile `index` of a product; false beyond the last one. Tiles lie by groups of rows of tiles, and in a group by columns: those that are worked
 * on at once share rows of both sides in L2. */
template <int USE, int ROWS, int COLUMNS>
__device__ inline bool moe_area_of(const moe_product &q, int index, moe_area *area) {
  enum { GROUP = 16 };
  const int across = (int)((q.n + COLUMNS - 1) / COLUMNS);
  int down, expert = 0;
  if (USE == MOE_WEIGHTS) {
    down = (int)((q.m + ROWS - 1) / ROWS), expert = index / (down * across), index -= expert * down * across;
    if (expert >= q.order.experts) return false;
  } else {
    down = *q.order.tile_count;
  }
  const int line0 = index / (GROUP * across) * GROUP, lines = min(down - line0, GROUP);
  if (lines <= 0) return false;
  const int in_group = index - line0 * across, across0 = in_group / lines, col = across0 * COLUMNS;
  if (across0 >= across) return false;
  const int line = line0 + in_group - across0 * lines;
  if (USE == MOE_WEIGHTS) {
    const int row = line * ROWS, rows = (int)q.m - row;
    *area = moe_area{expert, row, min(rows, ROWS), col, q.order.first[expert], q.order.first[expert + 1]};
    return true;
  }
  const moe_tile tile = q.order.tiles[line];
  const int rows = q.order.first[tile.expert + 1] - tile.first;
  *area = moe_area{tile.expert, tile.first, min(rows, ROWS), col, 0, 0};
  return true;
}

#endif
