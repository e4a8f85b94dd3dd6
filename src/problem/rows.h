/* Rows of tensors, as problems have them. */
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

#endif
