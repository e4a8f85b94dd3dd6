/* What policy_loss and fused_linear_policy have alike. */
#ifndef TIGON_OP_POLICY_LOSS_INSIDE_H
#define TIGON_OP_POLICY_LOSS_INSIDE_H

#include <tigon/op/policy_loss.h>

#include "op/loss.h"

/* Numbers of the whole call. */
#define POLICY_METRICS                                                                                     \
  WANT(kl, "1 a scalar", F32, DENSE, NULL), WANT(clip_low, "1 a scalar", F32, DENSE, NULL),                \
      WANT(clip_high, "1 a scalar", F32, DENSE, NULL), WANT(mean_entropy, "1 a scalar", F32, DENSE, NULL), \
      WANT(mean_ratio, "1 a scalar", F32, DENSE, NULL)
/* Fields of `options`. token_advantage and token_ratio say which of two shapes a tensor has. */
#define POLICY_NUMBERS                                                                                                 \
  CHOICE(options.kind, TIGON_POLICY_VESPO), FLAG(options.sequence_level), CHOICE(options.token_advantage, 1),          \
      CHOICE(options.token_ratio, 1), FLAG(options.kl_bias_corrected), OR_ZERO(options.eps_low),                       \
      OR_ZERO(options.eps_high), OR_ZERO(options.delta), OR_ZERO(options.tau_positive), OR_ZERO(options.tau_negative), \
      OR_ZERO(options.k_positive), OR_ZERO(options.lambda_positive), OR_ZERO(options.k_negative),                      \
      OR_ZERO(options.lambda_negative), NUMBER(options.kl_weight, 0, FLT_MAX), FINITE(options.entropy_weight),         \
      AT_LEAST(options.max_length, 0), RESERVED(options.reserved)

/* Checks the two tensors of sequences or tokens against them; *p has them, the sequences and the options' numbers. */
tigon_status tigon_check_policy(tigon_context *context, const tigon_policy_loss_options *options,
                                const tigon_sequences *of, const tigon_tensor *advantage, const tigon_tensor *ratio,
                                tigon_policy_loss_fwd_problem *p);

#endif
