/* What preference_loss and fused_linear_preference have alike. */
#ifndef TIGON_OP_PREFERENCE_LOSS_INSIDE_H
#define TIGON_OP_PREFERENCE_LOSS_INSIDE_H

#include <tigon/op/preference_loss.h>

#include "op/loss.h"

/* Fields of `options`. */
#define PREFERENCE_NUMBERS                                                                                         \
  CHOICE(options.kind, TIGON_PREFERENCE_BCO), OR_ZERO(options.beta), BELOW(options.label_smoothing, 0, 0.5),       \
      FINITE(options.gamma), {NUMBER_AT(A, options.tau), .flags = TIGON_FIELD_OR_ZERO, .low = FLT_MIN, .high = 1}, \
      OR_ZERO(options.desirable_weight), OR_ZERO(options.undesirable_weight), OR_ZERO(options.nll_weight),         \
      RESERVED(options.reserved)

typedef struct tigon_preference_args {
  const tigon_preference_loss_options *options;
  int64_t sequences;
  const char *sequences_name; /* for sentences */
  const tigon_tensor *labels; /* labels of sequences, desirable or not */
  const char *labels_name;
  const tigon_tensor *ref, *shift;
} tigon_preference_args;
/* Checks what the kind asks for; *p has these tensors, the sequences and the options' numbers. */
tigon_status tigon_check_preference(tigon_context *context, const tigon_preference_args *args,
                                    tigon_preference_loss_fwd_problem *p);

#endif
