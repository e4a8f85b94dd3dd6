/* What the launcher of attn_res hands to its kernels: structs of 8-byte fields. */
#ifndef TIGON_ASCEND_KERNEL_ATTN_RES_H
#define TIGON_ASCEND_KERNEL_ATTN_RES_H

#include "ascend/kernel/rows.h"

/* v or dv: block i begins at word i of the table, or `step` elements after block i - 1. */
typedef struct blocks {
  gm_rows rows;
  gm_ptr table; /* [blocks] addresses; NULL: by step */
  int64_t step;
} blocks;

/* A token's blocks are the rows of its tiles, `group` of them, with `chunk` columns, and backward dh's row behind them. */
typedef struct attn_res_arguments {
  gm_space space;
  blocks v, dv;
  gm_rows h; /* backward: dh */
  gm_ptr q, wn, a, rstd;
  gm_ptr slabs; /* [programs, cols] f32 of backward; NULL: not wanted */
  int64_t cols, count, dtype, q_dtype, wn_dtype;
  int64_t group, chunk, buffers;
  int64_t held;     /* 1: all tiles of a token are on chip at once */
  int64_t resident; /* 1: so are c and the program's sums of all columns */
  float eps, unused;
} attn_res_arguments;

enum { ATTN_RES_ADDRESSES = 64 }; /* addresses of a launch */

typedef struct attn_res_table_arguments {
  gm_ptr to;
  int64_t count, address[ATTN_RES_ADDRESSES];
} attn_res_table_arguments;

/* dq = u * wn, or dwn = u * q, u being the slabs' sum. */
typedef struct attn_res_sums_arguments {
  gm_ptr slabs, factor, to;
  int64_t count, cols, chunk, factor_dtype, dtype, accumulate;
} attn_res_sums_arguments;

void attn_res_fwd(ub_arena *ub, const void *arguments);
void attn_res_bwd(ub_arena *ub, const void *arguments);
void attn_res_table(ub_arena *ub, const void *arguments);
void attn_res_sums(ub_arena *ub, const void *arguments);

#endif
