/* The problem of fused_moe: tokens, their slots, and the experts' weights. */
#ifndef TIGON_PROBLEM_MOE_H
#define TIGON_PROBLEM_MOE_H

#include "problem/columns.h"
#include "problem/map.h"

/* Matrices [experts, n, k], or their gradients: element (e, i, j) lies e * expert + i * pitch + j elements after data; turned:
 * e * expert + j * pitch + i. */
typedef struct tigon_expert_weights {
  void *data;        /* NULL: a gradient that is not wanted, or a workspace is asked for */
  tigon_dtype dtype; /* a weight's is the problem's, a gradient's may be f32 instead; TIGON_DTYPE_NONE: absent */
  int64_t expert, pitch;
  bool turned;
} tigon_expert_weights;

/* Slot s = t * top_k + k is choice k of token t. Position i is a place in the order of slots: by expert, then by s, and slots of no
 * expert last. Any extent may be 0, but forward has tokens. */
typedef struct tigon_fused_moe_problem {
  tigon_row_space space;                    /* rows of the tokens: x, y, dy, dx */
  int64_t cols, inner, experts, top_k;      /* H, I, E, K */
  tigon_dtype dtype, idx_dtype;             /* dtype of x, y, dy, dx, pre and the weights; i32 or i64 */
  tigon_rows x, y;                          /* [rows, cols]; backward: y is dy */
  tigon_rows dx;                            /* backward; data may be NULL */
  const void *idx;                          /* [rows, top_k]: slot s's expert; one outside [0, experts) is none */
  tigon_vector w, dw;                       /* [rows, top_k] by slot; dw backward, may be absent. f32 or `dtype` */
  tigon_expert_weights gate_up, dgate_up;   /* [experts, 2 * inner, cols]; dgate_up may be absent */
  tigon_expert_weights down, ddown;         /* [experts, cols, inner]; ddown may be absent */
  tigon_vector gate_up_bias, dgate_up_bias; /* [experts, 2 * inner]; each may be absent. f32 or `dtype` */
  tigon_vector down_bias, ddown_bias;       /* [experts, cols]; each may be absent. f32 or `dtype` */
  tigon_vector pre;                         /* [rows * top_k, 2 * inner] by position; may be absent */
  tigon_moe_act act;                        /* activation of u = gate_mult * min(a, clamp) */
  tigon_map_numbers numbers;                /* gate_mult, down_mult, clamp (0: none), up_offset */
  bool interleaved, weight_before_down;     /* as the header says */
  bool accumulate;                          /* into dgate_up, ddown and the biases' gradients */
  void *workspace;                          /* NULL: its size is asked for */
  int64_t workspace_bytes;                  /* granted. Asked for: 0: the least that works, 1: the size recommended */
} tigon_fused_moe_problem;
typedef tigon_fused_moe_problem tigon_fused_moe_fwd_problem, tigon_fused_moe_bwd_problem;

/* Slots, which the front has made sure can be counted, with their rows of any width. */
TIGON_SHARED int64_t tigon_moe_slots(const tigon_fused_moe_problem *p) { return p->space.rows * p->top_k; }

/* Slot s's expert; -1: none. */
TIGON_SHARED int64_t tigon_moe_expert(const tigon_fused_moe_problem *p, int64_t s) {
  const int64_t e = p->idx_dtype == TIGON_I64 ? ((const int64_t *)p->idx)[s] : ((const int32_t *)p->idx)[s];
  return e >= 0 && e < p->experts ? e : -1;
}

/* Columns of pre that the gate and up of inner column j are. */
TIGON_SHARED int64_t tigon_moe_gate(const tigon_fused_moe_problem *p, int64_t j) { return p->interleaved ? 2 * j : j; }
TIGON_SHARED int64_t tigon_moe_up(const tigon_fused_moe_problem *p, int64_t j) {
  return p->interleaved ? 2 * j + 1 : p->inner + j;
}

/* Expert e's matrix. */
TIGON_SHARED void *tigon_moe_matrix(const tigon_expert_weights *of, size_t element_bytes, int64_t e) {
  return of->data ? (char *)of->data + e * of->expert * (int64_t)element_bytes : (void *)0;
}

#endif
