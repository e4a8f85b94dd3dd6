#ifndef TIGON_OPENCL_KERNEL_POLICY_LOSS_H
#define TIGON_OPENCL_KERNEL_POLICY_LOSS_H

#include "sequences.h"

enum { POLICY_PROGRAMS = 1024 /* that share the sequences, at most */ };

/* The sums that such a program leaves. */
typedef struct policy_sums {
  pair loss, kl, entropy, ratio, low, high; /* low, high: tokens that are clipped */
} policy_sums;

typedef struct policy_numbers {
  token_sequences of;
  int64_t programs;
  int32_t kind, sequence_level, token_advantage, token_ratio, kl_bias_corrected;
  float eps_low, eps_high, delta, kl_weight, entropy_weight;
  float tau[2], k[2], lambda[2];
  pair max_length;
} policy_numbers;

#ifdef __OPENCL_VERSION__
/* tigon_policy_kind */
enum {
  TIGON_POLICY_GRPO,
  TIGON_POLICY_BNPO,
  TIGON_POLICY_DR_GRPO,
  TIGON_POLICY_DAPO,
  TIGON_POLICY_LUSPO,
  TIGON_POLICY_CISPO,
  TIGON_POLICY_SAPO,
  TIGON_POLICY_VESPO,
};
/* What the formulas of a token read of a call. */
typedef struct tigon_policy_loss_fwd_problem {
  int kind;
  bool sequence_level, kl_bias_corrected;
  float eps_low, eps_high, delta, kl_weight, tau[2], k[2], lambda[2];
} tigon_policy_loss_fwd_problem;
#endif

#endif
