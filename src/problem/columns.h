/* Elementwise work on rows with vectors of columns and a number in the device's memory, whose gradients are sums over rows. */
#ifndef TIGON_PROBLEM_COLUMNS_H
#define TIGON_PROBLEM_COLUMNS_H

#include "problem/rows.h"
#include "slabs.h"

typedef struct tigon_vector {
  void *data;        /* NULL: absent, or a workspace is asked for */
  tigon_dtype dtype; /* TIGON_DTYPE_NONE: absent */
} tigon_vector;

/* Forward: x in `in`, y in `out`. Backward: dy and x; dx. */
typedef struct tigon_columns_problem {
  tigon_row_space space; /* without rows where there are no columns */
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows in[2], out;
  tigon_vector number, vector[2]; /* [1]; [cols] */
  tigon_vector dnumber, dvector[2];
  float *slabs;    /* [slabs, 2, cols] of dvector, then dnumber's partial sums */
  bool accumulate; /* into the gradients of the number and of the vectors */
} tigon_columns_problem;
typedef tigon_columns_problem tigon_dyt_fwd_problem, tigon_dyt_bwd_problem;

/* A tensor that may be absent. */
TIGON_SHARED tigon_vector tigon_vector_of(const tigon_tensor *t) { return (tigon_vector){t->data, t->dtype}; }

/* Element i of a vector of i32 or i64. */
TIGON_SHARED int64_t tigon_vector_index(tigon_vector of, int64_t i) {
  return of.dtype == TIGON_I64 ? ((const int64_t *)of.data)[i] : ((const int32_t *)of.data)[i];
}

/* Is any gradient wanted that is a sum? A query has no data. */
TIGON_SHARED bool tigon_columns_sums(const tigon_columns_problem *p) {
  return p->dnumber.dtype || p->dvector[0].dtype || p->dvector[1].dtype;
}

#endif
