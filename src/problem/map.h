/* Elementwise work: an element of each output is made of the elements of the inputs at its place, and of a few numbers. */
#ifndef TIGON_PROBLEM_MAP_H
#define TIGON_PROBLEM_MAP_H

#include "problem/rows.h"

/* An operator fills those that it has. */
typedef struct tigon_map_numbers {
  float gate_mult, down_mult, clamp, up_offset; /* swiglu; clamp 0: none */
  tigon_gelu approx;                            /* geglu */
  const float *factor;                          /* scale; in the device's memory */
} tigon_map_numbers;

enum { TIGON_MAP_IN = 4, TIGON_MAP_OUT = 3 };

/* Inputs and outputs are in the order of the operator's formula: gradients come first. Rows that lie end to end in all tensors are
 * one row already. */
typedef struct tigon_map_problem {
  tigon_row_space space;
  int64_t cols;
  tigon_dtype dtype;
  int inputs, outputs;
  tigon_rows in[TIGON_MAP_IN], out[TIGON_MAP_OUT];
  tigon_map_numbers numbers;
} tigon_map_problem;
typedef tigon_map_problem tigon_swiglu_fwd_problem; /* a, b; c */
typedef tigon_map_problem tigon_swiglu_bwd_problem; /* dc, a, b; da, db */
typedef tigon_map_problem tigon_geglu_fwd_problem;
typedef tigon_map_problem tigon_geglu_bwd_problem;
typedef tigon_map_problem tigon_relu_squared_fwd_problem; /* x; y */
typedef tigon_map_problem tigon_relu_squared_bwd_problem; /* dy, x; dx */
typedef tigon_map_problem tigon_scale_fwd_problem;        /* x; y */

/* Has scale by this factor its result where it is to be? */
TIGON_SHARED bool tigon_map_is_done(const tigon_map_problem *p, float factor) {
  return factor == 1 && p->in[0].data == p->out[0].data;
}

#endif
