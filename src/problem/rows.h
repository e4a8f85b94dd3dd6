/* What a front hands to a kernel over rows, and the rows that other families have. Everything is checked and collapsed; pitches
 * count elements. A pointer that may be NULL says so; the others are set whenever there are rows and columns. */
#ifndef TIGON_PROBLEM_ROWS_H
#define TIGON_PROBLEM_ROWS_H

#include <stdbool.h>
#include <tigon/tigon.h>

#include "core/shared.h"

/* Rows of a problem: leading dimensions of all its tensors, collapsed together. Row r is (i, j, k) with
 * r = (i * middle + j) * inner + k; inner = rows when one pitch a tensor is enough. */
typedef struct tigon_row_space {
  int64_t rows;
  int64_t middle, inner;
} tigon_row_space;

/* One tensor's rows: row (i, j, k) starts pitch[0] * i + pitch[1] * j + pitch[2] * k elements after data. */
typedef struct tigon_rows {
  void *data;
  int64_t pitch[3];
} tigon_rows;

/* Offset of row r in elements. */
TIGON_SHARED int64_t tigon_row_offset(const tigon_row_space *space, const tigon_rows *t, int64_t r) {
  if (space->inner == space->rows) return r * t->pitch[2];
  const int64_t k = r % space->inner, ij = r / space->inner;
  return ij / space->middle * t->pitch[0] + ij % space->middle * t->pitch[1] + k * t->pitch[2];
}

/* Row r's first element; NULL for an absent tensor. */
TIGON_SHARED void *tigon_row(const tigon_row_space *space, const tigon_rows *t, size_t element_bytes, int64_t r) {
  return t->data ? (char *)t->data + tigon_row_offset(space, t, r) * (int64_t)element_bytes : NULL;
}

typedef struct tigon_embedding_fwd_problem {
  tigon_row_space space; /* rows of y */
  int64_t cols, vocab;
  tigon_dtype dtype, idx_dtype;
  const void *table;
  int64_t table_pitch;
  const void *idx; /* [rows] */
  tigon_rows y;
  int32_t *error_flag; /* may be NULL */
} tigon_embedding_fwd_problem;

typedef struct tigon_embedding_bwd_problem {
  tigon_row_space space; /* rows of dy */
  int64_t cols, vocab;
  tigon_dtype dtype, idx_dtype, dtable_dtype;
  tigon_rows dy;
  const void *idx;     /* [rows] */
  void *dtable;        /* [vocab, cols] */
  int64_t padding_idx; /* -1: none */
  int64_t *order;      /* workspace of the sort by index, where a backend sorts so */
  int32_t *error_flag; /* may be NULL */
  bool accumulate;
} tigon_embedding_bwd_problem;

typedef struct tigon_softmax_fwd_problem {
  tigon_row_space space;
  int64_t cols, tokens; /* row r is query r % tokens */
  tigon_dtype dtype, mask_dtype;
  tigon_rows x, y;
  tigon_rows mask; /* rows of x's row space (pitches of broadcast dimensions are 0); data may be NULL */
  float scale;
  bool causal;
} tigon_softmax_fwd_problem;

typedef struct tigon_softmax_bwd_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows dy, y, dx;
  float scale;
} tigon_softmax_bwd_problem;

typedef struct tigon_sparsemax_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows x, y, dy, dx; /* forward x and y, backward all but x */
} tigon_sparsemax_problem;
typedef tigon_sparsemax_problem tigon_sparsemax_fwd_problem, tigon_sparsemax_bwd_problem;

#endif
