#ifndef TIGON_OPENCL_KERNEL_PREFERENCE_LOSS_H
#define TIGON_OPENCL_KERNEL_PREFERENCE_LOSS_H

#include "sequences.h"

typedef struct preference_numbers {
  token_sequences of;
  int64_t items, shifts, nll_sequences;
  int32_t kind, counts_dtype, labels_dtype, nll_dtype;
  float beta, label_smoothing, gamma, tau, weight[2];
  float nll_weight, unused;
} preference_numbers;

#ifdef __OPENCL_VERSION__
/* tigon_preference_kind */
enum {
  TIGON_PREFERENCE_SIGMOID,
  TIGON_PREFERENCE_HINGE,
  TIGON_PREFERENCE_IPO,
  TIGON_PREFERENCE_EXO_PAIR,
  TIGON_PREFERENCE_NCA_PAIR,
  TIGON_PREFERENCE_ROBUST,
  TIGON_PREFERENCE_BCO_PAIR,
  TIGON_PREFERENCE_SPPO_HARD,
  TIGON_PREFERENCE_APO_ZERO,
  TIGON_PREFERENCE_APO_DOWN,
  TIGON_PREFERENCE_DISCOPOP,
  TIGON_PREFERENCE_ORPO,
  TIGON_PREFERENCE_KTO,
  TIGON_PREFERENCE_BCO,
};
typedef preference_numbers tigon_preference_loss_fwd_problem;
#endif

#endif
