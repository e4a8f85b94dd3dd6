/* What linear needs beside matrix products: a sum of matrices that is rounded once, and sums of columns. */
#ifndef TIGON_ASCEND_KERNEL_LINEAR_H
#define TIGON_ASCEND_KERNEL_LINEAR_H

#include "ascend/kernel/rows.h"

enum { LINEAR_TERMS = 4 };

/* A matrix whose row r begins r * pitch elements after data; pitch 0: all rows are one. */
typedef struct linear_term {
  gm_ptr data;
  int64_t pitch, dtype;
} linear_term;

/* to[rows, cols] = the sum of the terms in order, in f32 and rounded once; 0 without terms. `to` may be a term. */
typedef struct linear_sum_arguments {
  linear_term term[LINEAR_TERMS], to;
  int64_t terms, rows, cols;
} linear_sum_arguments;

/* slabs[i, cols] = the sum of the i-th range of x's rows, the first one's with `more` [cols], which may be NULL. */
typedef struct linear_column_sums_arguments {
  linear_term x;
  gm_ptr more, slabs;
  int64_t rows, cols, ranges;
} linear_column_sums_arguments;

enum {
  LINEAR_TILE = 4096,  /* elements on chip: 16 KiB of f32, what a transfer at full rate wants */
  LINEAR_PANEL = 1024, /* columns that a task of linear_column_sums has */
};

/* Rows of a tile. Rows of both element sizes are one pitch apart in UB where they fill blocks of 32 bytes. */
AICORE int64_t linear_tile_rows(int64_t cols) { return cols % 16 || cols > LINEAR_TILE ? 1 : LINEAR_TILE / cols; }

void linear_sum(ub_arena *ub, const void *arguments);
void linear_column_sums(ub_arena *ub, const void *arguments);

#endif
