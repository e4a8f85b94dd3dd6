/* What attn_res's launchers and kernels agree on. */
#ifndef TIGON_CUDA_ATTN_RES_H
#define TIGON_CUDA_ATTN_RES_H

#include "problem/attn_res.h"

enum {
  ATTN_RES_THREADS = 512, /* the most threads of a block, which has a token */
  ATTN_RES_PACKS = 2,     /* packs of a row that a thread should have */
  ATTN_RES_FEW = 8,       /* blocks whose numbers threads have in registers, at most */
  ATTN_RES_STAGES = 3,    /* tokens whose rows are in shared memory at once, at most */
  ATTN_RES_GROUP = 4,     /* blocks whose sums are taken at once */
  ATTN_RES_LISTED = 192,  /* addresses in a launch's parameters; more are in the workspace */
  ATTN_RES_WRITTEN = 384, /* addresses that a launch writes there */
  ATTN_RES_WORDS = 3,     /* numbers of a token's block: fwd weight; bwd weight, slope, back */
};

/* Where the blocks of a list begin. */
typedef struct attn_res_places {
  const void *const *table; /* in the device's memory; NULL: here */
  const void *here[ATTN_RES_LISTED];
} attn_res_places;

/* How a call is cut. */
typedef struct attn_res_cut {
  int64_t units;     /* packs of a row, or elements where there are no packs; where anything is held in shared memory */
  int64_t held_rows; /* rows that are, dh's included */
  float *words;      /* numbers of all blocks of the grid; NULL: in shared memory */
  float *slabs;      /* [blocks of the grid, cols]; NULL: no sums are wanted */
  bool sums_held;    /* u is there, too, until the end */
  int stages;        /* tokens whose rows are in shared memory at once; 0: one, and not in a ring */
  attn_res_places v, dv;
} attn_res_cut;

typedef struct attn_res_addresses {
  const void **to;
  int64_t count;
  const void *address[ATTN_RES_WRITTEN];
} attn_res_addresses;

/* Floats of a block: sums of each warp, then the numbers. */
TIGON_SHARED int64_t attn_res_words(int64_t blocks, int threads) {
  return (2 * (threads / 32) + ATTN_RES_WORDS) * blocks;
}

#endif
