#ifndef TIGON_OPENCL_KERNEL_ROPE_H
#define TIGON_OPENCL_KERNEL_ROPE_H

#include "shared.h"

enum { ROPE_AXES = 3, ROPE_WIDE = 4 /* vectors of pairs that a work-item alone has at a time */ };

/* Elements of a [batch, tokens, heads, head_dim] tensor from one to the next. */
typedef struct rope_heads {
  int64_t heads, batch, token, head;
} rope_heads;

/* Pairs first, first + step, .. below end. */
typedef struct rope_pairs {
  int64_t first, end, step;
} rope_pairs;

typedef struct rope_numbers {
  int64_t rows, tokens, head_dim, pairs; /* rows: tokens of all sequences */
  rope_heads q, k, q_out, k_out;
  int64_t table_step, table_axis_pitch, table_batch_pitch, table_pitch, table_rows;
  int64_t position_axis_pitch, position_pitch;
  rope_pairs of[ROPE_AXES]; /* those of height and width; time has the others */
  int32_t table_dtype, position_dtype;
  int32_t axes, interleaved;
  float sign; /* -1 turns back */
} rope_numbers;

#endif
