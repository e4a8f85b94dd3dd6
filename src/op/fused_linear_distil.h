/* What fused_linear_divergence and fused_linear_topk_divergence have alike. */
#ifndef TIGON_OP_FUSED_LINEAR_DISTIL_H
#define TIGON_OP_FUSED_LINEAR_DISTIL_H

#include "op/divergence.h"
#include "op/fused_linear_cross_entropy.h"

#define DISTIL_TENSORS                                                                                                \
  MAY(labels, "@", INDEX('v'), DENSE), MAY(token_scale, "@", F32, DENSE), MAY(denominator, "1 a scalar", F32, DENSE), \
      MAY(dloss, "1 a scalar", F32, DENSE), OUT(loss, "1 a scalar", F32, DENSE, NULL),                                \
      WANT(soft_loss, "1 a scalar", F32, DENSE, NULL), WANT(hard_loss, "1 a scalar", F32, DENSE, NULL),               \
      WANT(token_loss, "@", F32, DENSE, NULL), WANT(error, "1 a scalar", I32, DENSE, NULL),                           \
      WANT(dhidden, "*h", SAME, ROWS, "hidden"), WANT(dweight, "vh", SECOND_OR_F32, ROWS, NULL),                      \
      WANT(dbias, "v", SECOND_OR_F32, DENSE, NULL)
#define DISTIL_LOGITS NUMBER(beta, 0, 1), OR_ZERO(temperature), OR_ZERO(softcap), OR_ZERO(logit_scale)
#define DISTIL_WEIGHTS                                                                              \
  OR_ZERO(weight_soft), NUMBER(weight_hard, 0, FLT_MAX), FLAG(has_ignore_index), ANY(ignore_index), \
      FLAG(by_temperature_squared)
#define DISTIL_END FLAG(logits_in_f32), FLAG(accumulate_dweight), FINITE(grad_scale), WORKSPACE, RESERVED(reserved)

/* Their arguments; a query has no workspace. */
typedef struct distil_args {
  head_args head;
  tigon_tensor token_scale, dloss, soft_loss, hard_loss;
  tigon_divergence_kind kind;
  double beta, temperature, softcap, logit_scale, weight_soft, weight_hard, grad_scale;
  bool by_temperature_squared;
} distil_args;
#define DISTIL_ARGS(a, query)                                                                                       \
  {                                                                                                                 \
    .head = {.hidden = (a)->hidden,                                                                                 \
             .weight = (a)->weight,                                                                                 \
             .bias = (a)->bias,                                                                                     \
             .labels = (a)->labels,                                                                                 \
             .options = {.has_ignore_index = (a)->has_ignore_index,                                                 \
                         .ignore_index = (a)->ignore_index,                                                         \
                         .denominator = (a)->denominator},                                                          \
             .out = {.loss = (a)->loss, .token_loss = (a)->token_loss, .error = (a)->error},                        \
             .dhidden = (a)->dhidden,                                                                               \
             .dweight = (a)->dweight,                                                                               \
             .dbias = (a)->dbias,                                                                                   \
             .accumulate_dweight = (a)->accumulate_dweight,                                                         \
             .logits_in_f32 = (a)->logits_in_f32,                                                                   \
             .workspace = (query) ? NULL : (a)->workspace,                                                          \
             .workspace_bytes = (a)->workspace_bytes},                                                              \
    .token_scale = (a)->token_scale, .dloss = (a)->dloss, .soft_loss = (a)->soft_loss, .hard_loss = (a)->hard_loss, \
    .kind = (a)->kind, .beta = (a)->beta, .temperature = (a)->temperature, .softcap = (a)->softcap,                 \
    .logit_scale = (a)->logit_scale, .weight_soft = (a)->weight_soft, .weight_hard = (a)->weight_hard,              \
    .grad_scale = (a)->grad_scale, .by_temperature_squared = (a)->by_temperature_squared != 0                       \
  }

/* `loss` of *d, and all else 0. */
tigon_status tigon_distil_prepare(tigon_context *context, const distil_args *a, head_distil *d);
/* A side's softcap and scale, whose fields begin with `of`. */
tigon_status tigon_distil_map(tigon_context *context, const char *of, double cap, double scale, double temperature,
                              tigon_logit_map *map);
/* With `least` only a query of the workspace. */
tigon_status tigon_distil_call(tigon_context *context, const distil_args *a, head_distil *d, size_t *least,
                               size_t *good);

#endif
