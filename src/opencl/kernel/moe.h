#ifndef TIGON_OPENCL_KERNEL_MOE_H
#define TIGON_OPENCL_KERNEL_MOE_H

#include "shared.h"

enum {
  MOE_CHUNK = 64,         /* slots at least that one work-item sorts */
  MOE_MOST_CHUNKS = 1024, /* each counts all experts */
};

/* The order of slots: by expert, and those of none, which count as expert `experts`'s, last. In the workspace:
 *   count [chunks, experts + 1]: slots of an expert in a chunk, then in all chunks before it.
 *   first [experts + 2]: the position at which an expert's slots begin.
 *   slot [slots] by position, position [slots] by slot; all of 32 bits. */
typedef struct moe_order {
  int64_t slots, experts, top_k, chunk, chunks;
  int32_t idx_dtype, unused;
} moe_order;

/* Rows of slots: by position, pitch.of[2] apart, or those of the slot's token. */
typedef struct moe_rows {
  cl_pitch pitch;
  int32_t dtype, of_tokens;
} moe_rows;

/* By rows: out [slots, n] = (a [slots, k] times the expert's matrix + bias[n]) * w, where there are these. The matrix' element (column, term) lies
 * at column * pitch + term; by_term: at term * pitch + column.
 * By terms: out of each expert, [m, n], = sum over its positions of a's row times b's + (accumulate ? out : 0). */
typedef struct moe_product {
  tigon_row_space space; /* the tokens' */
  moe_order order;
  int64_t m, n, k;
  int64_t expert, pitch; /* elements from an expert's matrix to the next, and from its row */
  moe_rows a, b;
  int32_t by_term, out_dtype, bias_dtype, w_dtype, accumulate, unused;
} moe_product;

/* What is done to a row of a slot, and to those of a token or an expert. */
typedef struct moe_numbers {
  tigon_row_space space; /* the tokens' */
  moe_order order;
  int64_t cols, inner;
  cl_pitch to; /* y or dx; slopes: dy */
  moe_rows from;
  float gate_mult, down_mult, limit, up_offset; /* limit: Inf without a clamp */
  int32_t gelu, interleaved, weighted, accumulate;
  int32_t w_dtype, to_dtype, bias_dtype, clears; /* clears: rows of slots of no expert become 0 */
} moe_numbers;

#endif
