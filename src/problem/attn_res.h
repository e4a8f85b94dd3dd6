/* The problem of attn_res: rows of N blocks, which share one layout. */
#ifndef TIGON_PROBLEM_ATTN_RES_H
#define TIGON_PROBLEM_ATTN_RES_H

#include "problem/columns.h"

/* Rows of the tokens in block 0, and how block i is found: by `at`, or `step` elements after block i - 1. */
typedef struct tigon_blocks {
  tigon_rows rows;
  int64_t step;
  const void *const *at; /* [blocks]; NULL: by step */
} tigon_blocks;

typedef struct tigon_attn_res_problem {
  tigon_row_space space; /* rows of tokens */
  int64_t cols, blocks;
  tigon_dtype dtype;
  tigon_blocks v, dv;
  tigon_rows h; /* backward: dh */
  tigon_vector q, wn, dq, dwn;
  float *a, *rstd; /* [rows, blocks]; may be NULL forward */
  void *workspace;
  float eps;
  bool accumulate; /* into dq and dwn */
} tigon_attn_res_problem;
typedef tigon_attn_res_problem tigon_attn_res_fwd_problem, tigon_attn_res_bwd_problem;

/* Where block i begins. */
TIGON_SHARED void *tigon_block(const tigon_blocks *b, size_t element_bytes, int64_t i) {
  if (b->at) return (void *)(uintptr_t)b->at[i]; /* NOLINT(performance-no-int-to-ptr) */
  return (char *)b->rows.data + i * b->step * (int64_t)element_bytes;
}

#endif
