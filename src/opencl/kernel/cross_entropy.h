#ifndef TIGON_OPENCL_KERNEL_CROSS_ENTROPY_H
#define TIGON_OPENCL_KERNEL_CROSS_ENTROPY_H

#include "loss.h"

enum { STAT_M, STAT_S, STAT_W, STAT_U, STAT_Y, STAT_WORDS }; /* as vocab_parallel_cross_entropy's header names them */

typedef struct cross_entropy_numbers {
  tigon_row_space space;
  int64_t cols, panel_begin;
  cl_pitch logits, dlogits;
  label_rule rule;
  logit_map map;
  float smoothing, lse_square;
  pair keep;          /* 1 - smoothing */
  pair share;         /* smoothing / classes that it is spread over */
  pair minus;         /* keep + share: what is taken from the label's probability, over its weight */
  pair grad;          /* grad_scale * inverse_temperature */
  pair entropy_scale; /* the same of dentropy; 0: the entropy has no gradient */
  pair classes;       /* the sum of weights where there are none */
  int32_t dloss_rows, negated;
} cross_entropy_numbers;

#endif
