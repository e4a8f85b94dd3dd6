/* Problems of elementwise ops. Rows that lie end to end in all tensors have been made one. */
#ifndef TIGON_PROBLEM_MAP_H
#define TIGON_PROBLEM_MAP_H

#include "problem/rows.h"

/* swiglu and geglu, forward. */
typedef struct tigon_gate_fwd_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows a, b, c;
  float gate_mult, down_mult, clamp; /* swiglu only; clamp 0: none */
  tigon_gelu approx;                 /* geglu only */
} tigon_gate_fwd_problem;
typedef tigon_gate_fwd_problem tigon_swiglu_fwd_problem;
typedef tigon_gate_fwd_problem tigon_geglu_fwd_problem;

/* swiglu and geglu, backward. */
typedef struct tigon_gate_bwd_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows dc, a, b, da, db;
  float gate_mult, down_mult, clamp;
  tigon_gelu approx;
} tigon_gate_bwd_problem;
typedef tigon_gate_bwd_problem tigon_swiglu_bwd_problem;
typedef tigon_gate_bwd_problem tigon_geglu_bwd_problem;

typedef struct tigon_relu_squared_fwd_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows x, y;
} tigon_relu_squared_fwd_problem;

typedef struct tigon_relu_squared_bwd_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype;
  tigon_rows dy, x, dx;
} tigon_relu_squared_bwd_problem;

#endif
