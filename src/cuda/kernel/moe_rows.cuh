/* Where tiles, slots and their rows lie. */
#ifndef TIGON_CUDA_KERNEL_MOE_ROWS_CUH
#define TIGON_CUDA_KERNEL_MOE_ROWS_CUH

#include "cuda/fused_moe.h"
#include "cuda/kernel/element.cuh"

/* The row of a position, and elements from the tensor's first to a row. */
__device__ static inline int moe_row_of(const moe_order &o, const moe_rows &of, int position) {
  return of.of_tokens ? o.token[position] : position;
}
__device__ static inline int64_t moe_offset_of(const tigon_row_space &space, const moe_rows &of, int row) {
  return of.of_tokens ? tigon_row_offset(&space, &of.rows, row) : row * of.rows.pitch[2];
}
__device__ static inline int64_t moe_row_offset(const moe_order &o, const tigon_row_space &space, const moe_rows &of,
                                                int position) {
  return moe_offset_of(space, of, moe_row_of(o, of, position));
}

/* The expert of slot s, or `experts`. */
__device__ static inline int moe_expert_of(const moe_order &o, int s) {
  const int64_t e = load_index(o.idx, s, o.idx_dtype);
  return e >= 0 && e < o.experts ? (int)e : o.experts;
}

/* A tile of a product: rows [row, row + rows) and columns from `col` on. row is a position. With MOE_WEIGHTS it is a row of the
 * matrix, and the terms are the positions [begin, end). */
struct moe_area {
  int expert, row, rows, col, begin, end;
};

/* Tile `index` of a product, of `tile_count` tiles of rows; false beyond the last one. Tiles lie by groups of rows of tiles, and in a group by columns:
 * those that are worked on at once share rows of both sides in L2. Nothing waits for what is loaded. */
template <int USE, int ROWS, int COLUMNS>
__device__ inline bool moe_area_of(const moe_product &q, int tile_count, int index, moe_area *area) {
  enum { GROUP = 16 };
  const int across = (int)((q.n + COLUMNS - 1) / COLUMNS);
  int down = tile_count, expert = 0;
  if (USE == MOE_WEIGHTS) {
    down = (int)((q.m + ROWS - 1) / ROWS), expert = index / (down * across), index -= expert * down * across;
    if (expert >= q.order.experts) return false;
  }
  const int line0 = index / (GROUP * across) * GROUP, lines = min(down - line0, GROUP);
  if (lines <= 0) return false;
  const int in_group = index - line0 * across, across0 = in_group / lines, col = across0 * COLUMNS;
  if (across0 >= across) return false;
  const int line = line0 + in_group - across0 * lines;
  if (USE == MOE_WEIGHTS) {
    const int row = line * ROWS, rows = (int)q.m - row;
    *area = moe_area{expert, row, min(rows, ROWS), col, q.order.first[expert], q.order.first[expert + 1]};
  } else {
    const moe_tile tile = q.order.tiles[line];
    *area = moe_area{tile.expert, tile.first, tile.rows, col, 0, 0};
  }
  return true;
}
template <int USE> __device__ inline int moe_tile_count(const moe_product &q) {
  return USE == MOE_WEIGHTS ? 0 : *q.order.tile_count;
}

/* The tiles of a block that stays for each of the grid's blocks-th one. The next one is on its way while a tile is worked on. */
template <int USE, int ROWS, int COLUMNS> struct moe_walk {
  int index, tile_count;
  bool more;     /* there is a next one */
  moe_area next; /* without rows and terms where there is none */

  __device__ explicit moe_walk(const moe_product &q)
      : index((int)blockIdx.x), tile_count(moe_tile_count<USE>(q)), next() {
    more = moe_area_of<USE, ROWS, COLUMNS>(q, tile_count, index, &next);
  }
  __device__ bool take(const moe_product &q, moe_area *area) {
    if (!more) return false;
    *area = next, index += (int)gridDim.x;
    more = moe_area_of<USE, ROWS, COLUMNS>(q, tile_count, index, &next);
    return true;
  }
};

#endif
