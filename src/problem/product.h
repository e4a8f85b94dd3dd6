/* Problems of matrix products. */
#ifndef TIGON_PROBLEM_PRODUCT_H
#define TIGON_PROBLEM_PRODUCT_H

#include <stdbool.h>
#include <tigon/tigon.h>

#include "core/shared.h"

typedef struct tigon_linear_fwd_problem {
  int64_t rows, n, k; /* y [rows, n] = x [rows, k] w[n, k]^T + b[n] */
  tigon_dtype dtype, b_dtype, y_dtype;
  const void *x, *w, *b; /* b may be NULL */
  void *y;
  int64_t x_pitch, w_pitch, y_pitch;
} tigon_linear_fwd_problem;

/* With rows = 0, dw and db are their sums' rounding (below), 0 without sums. */
typedef struct tigon_linear_bwd_problem {
  int64_t rows, n, k;
  tigon_dtype dtype, dy_dtype, dx_dtype, dw_dtype, db_dtype; /* dx_dtype: dtype, or f32 */
  const void *dy, *x, *w;
  void *dx, *dw, *db; /* each may be NULL */
  int64_t dy_pitch, x_pitch, w_pitch, dx_pitch, dw_pitch;
  const float *dw_sums, *db_sums; /* [n, k] contiguous, [n]: added in f32 before dw and db are rounded; may be NULL */
  void *workspace;
  size_t workspace_bytes;
  bool accumulate;    /* dw and db are added to what is there */
  bool accumulate_dx; /* dx is, too: only an f32 one */
} tigon_linear_bwd_problem;

#endif
