#ifndef TIGON_OPENCL_KERNEL_DIVERGENCE_H
#define TIGON_OPENCL_KERNEL_DIVERGENCE_H

#include "loss.h"

#ifdef __OPENCL_VERSION__
enum { /* tigon_divergence_kind, tigon_distribution */
       TIGON_DIVERGENCE_KL,
       TIGON_DIVERGENCE_REVERSE_KL,
       TIGON_DIVERGENCE_JSD,
       TIGON_DIVERGENCE_TVD,
       TIGON_DIVERGENCE_COSINE,
};
enum { TIGON_DISTRIBUTION_LOGITS, TIGON_DISTRIBUTION_LOG_PROBABILITIES, TIGON_DISTRIBUTION_PROBABILITIES };
#endif

/* What divergence and topk_divergence have alike. */
typedef struct divergence_numbers {
  tigon_row_space space;
  int64_t cols, panel_begin;
  cl_pitch input, target, dinput;
  label_rule rule;
  logit_map q, hard_map; /* hard_map: without the temperature */
  int32_t kind, input_is, target_is, dloss_rows;
  float soft, hard, beta, rest; /* rest: 1 - beta */
  pair log_beta, log_rest;      /* for jsd */
  pair grad, hard_grad;         /* what every gradient of either is multiplied by */
} divergence_numbers;

typedef struct divergence_pair {
  divergence_numbers of;
  int64_t target_cols;
  logit_map p;
} divergence_pair;

#endif
