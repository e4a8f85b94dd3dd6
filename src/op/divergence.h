/* What divergence and topk_divergence have alike. */
#ifndef TIGON_OP_DIVERGENCE_INSIDE_H
#define TIGON_OP_DIVERGENCE_INSIDE_H

#include <tigon/op/divergence.h>

#include "op/loss.h"

/* Tensors that make a row's gradient, fields of `out`, and numbers of `options` from target_is on. */
#define DIVERGENCE_FACTORS                                                 \
  MAY(dloss, "?1", F32, DENSE), MAY(options.token_scale, "@", F32, DENSE), \
      MAY(options.denominator, "1 a scalar", F32, DENSE)
#define DIVERGENCE_OUTPUTS                                                                     \
  WANT(out.loss, "1 a scalar", F32, DENSE, NULL), WANT(out.token_loss, "@", F32, DENSE, NULL), \
      WANT(out.stats, "*3", F32, DENSE, NULL)
#define DIVERGENCE_NUMBERS                                                                                      \
  CHOICE(options.target_is, TIGON_DISTRIBUTION_PROBABILITIES), NUMBER(options.beta, 0, 1),                      \
      OR_ZERO(options.temperature), ANY(options.ignore_index), CHOICE(options.reduction, TIGON_REDUCTION_NONE), \
      FLAG(options.by_temperature_squared)

/* jsd at either end of beta is the other kind. */
static inline tigon_divergence_kind tigon_divergence_kind_of(tigon_divergence_kind kind, double beta) {
  const float b = (float)beta;
  if (kind != TIGON_DIVERGENCE_JSD) return kind;
  return b == 0 ? TIGON_DIVERGENCE_KL : b == 1 ? TIGON_DIVERGENCE_REVERSE_KL : TIGON_DIVERGENCE_JSD;
}

/* A call of any entry, whose description holds. */
typedef struct tigon_divergence_args {
  const tigon_tensor *input, *target, *labels, *dinput, *dloss;
  const tigon_tensor *token_scale, *denominator;
  const tigon_tensor *loss, *token_loss; /* loss NULL: backward */
  float *stats;
  tigon_divergence_kind kind;
  tigon_distribution input_is, target_is;
  double beta, temperature, grad_scale;
  int64_t ignore_index;
  tigon_reduction reduction;
  int by_temperature_squared;
  void *workspace;
} tigon_divergence_args;
/* Its fields but input_is, from an entry's arguments `a`; then those of forward, and of backward. */
#define DIVERGENCE_ARGS                                                                                     \
  .input = &a->input, .target = &a->target, .labels = &a->labels, .dinput = &a->dinput, .dloss = &a->dloss, \
  .token_scale = &a->options.token_scale, .denominator = &a->options.denominator, .kind = a->options.kind,  \
  .target_is = a->options.target_is, .beta = a->options.beta, .temperature = a->options.temperature,        \
  .grad_scale = a->grad_scale, .ignore_index = a->options.ignore_index, .reduction = a->options.reduction,  \
  .by_temperature_squared = a->options.by_temperature_squared, .workspace = a->workspace
#define DIVERGENCE_FORWARD .loss = &a->out.loss, .token_loss = &a->out.token_loss, .stats = a->out.stats.data
#define DIVERGENCE_BACKWARD .stats = a->stats.data

/* Checks what the reduction and the temperature ask for; *p is filled but for space, rows and the workspace. */
tigon_status tigon_check_divergence(tigon_context *context, const tigon_divergence_args *args,
                                    tigon_divergence_problem *p);
/* The rest of *p, whose space and rows are there. */
tigon_status tigon_cut_divergence(tigon_context *context, const tigon_divergence_args *args,
                                  tigon_divergence_problem *p, size_t *bytes);

#endif
