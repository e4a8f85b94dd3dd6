/* What fused_moe's launchers and kernels agree on. */
#ifndef TIGON_CUDA_FUSED_MOE_H
#define TIGON_CUDA_FUSED_MOE_H

#include "problem/moe.h"

enum {
  MOE_THREADS = 256,
  MOE_WARPS = MOE_THREADS / 32,
  MOE_CHUNK = 64,         /* slots at least that one warp sorts */
  MOE_MOST_CHUNKS = 1024, /* each counts all experts */
  MOE_DOT_COLUMNS = 32,   /* at least, of a partial sum of dw */
  MOE_DEPTH = 64,         /* terms of a step of a product of 16-bit elements: rows of 128 bytes in shared memory */
};

/* fused_moe_order: one cluster orders the slots. */
enum {
  MOE_ORDER_BLOCKS = 8,
  MOE_ORDER_THREADS = 1024,
  MOE_ORDER_WARPS = MOE_ORDER_THREADS / 32,
  MOE_ORDER_SLOTS = 1 << 18,                                  /* at most: more are better shared by all processors */
  MOE_ORDER_COLUMNS = MOE_ORDER_WARPS + MOE_ORDER_BLOCKS + 3, /* words of shared memory per expert, and for none */
  MOE_ORDER_STATIC = 1024,                                    /* bytes at most of static shared memory */
};

/* Tiles of a product, rows x columns, and the columns of a warp: dw has a partial sum for each warp's columns.
 * plain: any dtype and alignment. mma: tensor cores from sm_80 on. wgmma: those of sm_90a. */
enum {
  MOE_PLAIN_ROWS = 64,
  MOE_PLAIN_COLUMNS = 128,
  MOE_PLAIN_DEPTH = 16,
  MOE_MMA_ROWS = 128,
  MOE_MMA_COLUMNS = 128,
  MOE_MMA_STAGES = 3,
  MOE_MMA_SHARED = MOE_MMA_STAGES * (MOE_MMA_ROWS + MOE_MMA_COLUMNS) * MOE_DEPTH * 2,
  MOE_WGMMA_ROWS = 128,
  MOE_WGMMA_COLUMNS = 256,
  MOE_WGMMA_STAGES = 3,
  MOE_WGMMA_THREADS = 512,                            /* warpgroups: one brings tiles, two multiply, one stores */
  MOE_WGMMA_STAGED = 4 * (MOE_WGMMA_COLUMNS / 2 + 8), /* bytes of a row of results that wait to be stored */
  MOE_WGMMA_SHARED = MOE_WGMMA_STAGES * (MOE_WGMMA_ROWS + MOE_WGMMA_COLUMNS) * MOE_DEPTH * 2 +
                     MOE_WGMMA_ROWS * MOE_WGMMA_STAGED + 1024 + 128,
};

/* Positions [first, first + rows) of an expert's slots, a tile's worth at most. */
typedef struct moe_tile {
  int32_t expert, first, rows, unused;
} moe_tile;

/* The order of slots, in the workspace. A chunk is the range of slots of a warp; slots of no expert count as expert `experts`'. */
typedef struct moe_order {
  const void *idx;
  tigon_dtype idx_dtype;
  int32_t slots, experts, top_k, chunk, chunks, tile_rows;
  int32_t *
      count; /* [chunks, experts + 1] slots of an expert in a chunk, then in all chunks before it; not fused_moe_order's */
  int32_t *first;    /* [experts + 2] totals, then the position at which an expert's slots begin */
  int32_t *slot;     /* [slots] by position */
  int32_t *token;    /* [slots] of that slot */
  int32_t *position; /* [slots] by slot */
  moe_tile *tiles;   /* [slots / tile_rows + experts] */
  int32_t *tile_count;
} moe_order;

/* Rows of slots: by position, or those of the slot's token. */
typedef struct moe_rows {
  tigon_rows rows;
  bool of_tokens;
} moe_rows;

/* What becomes of a product's sums. */
typedef enum moe_use {
  MOE_GATE,    /* pre and c */
  MOE_STORE,   /* z, or a share of dx */
  MOE_SLOPES,  /* dpre, w * c and dw */
  MOE_WEIGHTS, /* a gradient of weights */
} moe_use;

/* MOE_GATE, _STORE and _SLOPES: [slots, n] = a [slots, k] times the expert's matrix, whose element (column, term) lies at
 * column * pitch + term; by_term: at term * pitch + column. A tile of MOE_GATE of halves has columns of the gate and of up by
 * turns, 8 of each.
 * MOE_WEIGHTS: for each expert [m, n] = sum over its positions of a's row times b's. */
typedef struct moe_product {
  tigon_fused_moe_problem p;
  moe_order order;
  moe_rows a, b;
  tigon_expert_weights weights; /* b, or MOE_WEIGHTS: the output */
  int64_t m, n, k;
  bool by_term;
  void *out;         /* pre, z, a share of dx, dpre: [slots, ..] by position; NULL: not wanted */
  void *c;           /* [slots, inner] c, or w * c; NULL: not wanted */
  const void *pre;   /* MOE_SLOPES */
  tigon_vector bias; /* bias of the sums, [experts, n] */
  bool weighted;     /* MOE_GATE, MOE_STORE: the last result is multiplied by w */
  float *dots;       /* [slots, parts] of dw; NULL: not wanted */
  int64_t parts;
} moe_product;

/* to[t] = sum over the choices of token t, in order, of its shares. */
typedef struct moe_combine {
  moe_order order;
  tigon_row_space space;
  tigon_rows to;
  int64_t cols;
  const void *shares; /* [slots, cols] by position */
} moe_combine;

/* dw of each slot. */
typedef struct moe_dots {
  tigon_fused_moe_problem p;
  moe_order order;
  const float *dots; /* [slots, parts] by position */
  int64_t parts;
} moe_dots;

/* to[e] = (accumulate ? to[e] : 0) + sum over expert e's positions of `rows`, times w where `weighted`. */
typedef struct moe_sums {
  moe_order order;
  tigon_row_space space;
  moe_rows from;
  int64_t cols;
  tigon_vector w, to;
  bool weighted, accumulate;
} moe_sums;

enum { MOE_SUM_COLUMNS = 32 }; /* columns of a block; its warps have rows */

#endif
