/* What the launcher of fused_moe hands to its kernels: structs of 8-byte fields. Slot s = t * top_k + k is choice k of token t.
 * Slots are sorted by expert, then by s. A position is a place in this order. */
#ifndef TIGON_ASCEND_KERNEL_MOE_H
#define TIGON_ASCEND_KERNEL_MOE_H

#include "ascend/kernel/rows.h"

/* The order, in the workspace: i32, but weights are f32. A slot of no expert counts as one of expert `experts`. */
typedef struct moe_sorted {
  gm_ptr first;                /* [experts + 2] the position of an expert's first slot */
  gm_ptr position;             /* [slots] by slot */
  gm_ptr slot, expert, weight; /* [slots] by position */
} moe_sorted;

typedef struct moe_order_arguments {
  moe_sorted to;
  gm_ptr idx, w; /* [slots] */
  int64_t slots, experts, idx_dtype, w_dtype;
  int64_t panel, batch,
      chunk; /* experts that are counted at a time; slots of a load; positions of a task of moe_slots */
} moe_order_arguments;

/* to[position] = the row of the slot's token, for slots of an expert. */
typedef struct moe_gather_arguments {
  moe_sorted order;
  gm_space space;
  gm_rows from;
  gm_ptr to; /* [slots, cols] */
  int64_t slots, experts, top_k, cols, dtype;
  int64_t tile_rows, tile_cols;
} moe_gather_arguments;

/* Rows are by position. Columns of gate and up are two halves of a row, or come in turns. */
typedef struct moe_gate_arguments {
  moe_sorted order;
  gm_ptr from; /* [slots, 2 inner] f32 products if `made`, else pre */
  gm_ptr bias; /* [experts, 2 inner], added to products; may be NULL */
  gm_ptr to;   /* [slots, 2 inner] moe_gate: pre, may be NULL; moe_slopes: dpre */
  gm_ptr c;    /* [slots, inner] c, or w * c if `weighted` */
  /* moe_slopes alone */
  gm_ptr d;             /* [slots, inner] f32 */
  gm_ptr dw;            /* [slots] by slot, may be NULL */
  gm_ptr dy, down_bias; /* [slots, cols], [experts, cols]; dw has the sum of their products, unless down_bias is NULL */
  int64_t slots, experts, inner, cols;
  int64_t dtype, bias_dtype, dw_dtype, down_bias_dtype;
  int64_t made, weighted, interleaved, gelu;
  float gate_mult, down_mult, clamp, up_offset; /* clamp 0: none */
  int64_t panel;                                /* columns of gate on chip, a multiple of 16 */
} moe_gate_arguments;

/* to[t] = the sum over token t's choices, in order, of (share + bias[expert]) * w. */
typedef struct moe_token_sums_arguments {
  moe_sorted order;
  gm_space space;
  gm_rows to;
  gm_ptr shares;       /* [slots, cols] f32 by position */
  gm_ptr idx, w, bias; /* [slots], [slots], [experts, cols]; w and bias may be NULL; idx is read with a bias */
  int64_t top_k, experts, cols;
  int64_t dtype, idx_dtype, w_dtype, bias_dtype;
  int64_t panel; /* columns on chip, a multiple of 16 */
} moe_token_sums_arguments;

/* to[e] = the sum over expert e's positions of from's rows, times w if `weighted`, onto the old to[e] if `accumulate`. */
typedef struct moe_expert_sums_arguments {
  moe_sorted order;
  gm_ptr from, to; /* [slots, cols], [experts, cols] */
  int64_t slots, experts, cols, dtype, to_dtype;
  int64_t weighted, accumulate;
  int64_t tile_rows, panel; /* panel: columns of a task, a multiple of 16 */
} moe_expert_sums_arguments;

enum {
  MOE_LINES = 128, /* slots whose numbers the scalar pipe has at a time */
  MOE_TILE = 4096, /* words of a tile of rows: 16 KiB, what a transfer at full rate wants */
  MOE_TILE_ROWS = 64,
  MOE_SUMS_PANEL = 512,
  MOE_GATE_TILES = 36, /* f32 tiles of a panel that a gate's kernel takes at most; and words besides */
  MOE_GATE_WORDS = 1024,
};

void moe_order(ub_arena *ub, const void *arguments); /* first and position. One block */
void moe_slots(ub_arena *ub, const void *arguments); /* what is by position */
void moe_gather(ub_arena *ub, const void *arguments);
void moe_gate(ub_arena *ub, const void *arguments);
void moe_slopes(ub_arena *ub, const void *arguments);
void moe_token_sums(ub_arena *ub, const void *arguments);
void moe_expert_sums(ub_arena *ub, const void *arguments);

#endif
