#include <tigon/op/topk_divergence.h>

#include "op/loss.h"

#define NUMBERS                                                                                                  \
  CHOICE(options.kind, TIGON_DIVERGENCE_TVD), CHOICE(options.target_is, TIGON_DISTRIBUTION_PROBABILITIES),       \
      NUMBER(options.beta, 0, 1), OR_ZERO(options.temperature), ANY(options.ignore_index),                       \
      CHOICE(options.reduction, TIGON_REDUCTION_NONE), FLAG(options.by_temperature_squared), FLAG(options.tail), \
      NUMBER(options.least_tail, 0, 1), FINITE(grad_scale), RESERVED(options.reserved)
#define ROW_FACTORS MAY(options.token_scale, "@", F32, DENSE), MAY(options.denominator, "1 a scalar", F32, DENSE)

#define A tigon_topk_divergence_fwd_args
static const tigon_field fwd[] = {
    IN(input, "*v", SAME, ROWS),
    IN(target, "*k", SAME_OR_F32, ROWS),
    IN(target_ids, "*k", INDEX('v'), DENSE),
    MAY(labels, "@", INTEGER, DENSE),
    WANT(dinput, "*v", SAME, ROWS, "input"),
    MAY(dloss, "?1", F32, DENSE),
    ROW_FACTORS,
    WANT(out.loss, "1 a scalar", F32, DENSE, NULL),
    WANT(out.token_loss, "@", F32, DENSE, NULL),
    WANT(out.stats, "*3", F32, DENSE, NULL),
    WANT(out.error, "1 a scalar", I32, DENSE, NULL),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_topk_divergence_bwd_args
static const tigon_field bwd[] = {
    IN(input, "*v", SAME, ROWS),
    IN(target, "*k", SAME_OR_F32, ROWS),
    IN(target_ids, "*k", INDEX('v'), DENSE),
    MAY(labels, "@", INTEGER, DENSE),
    OUT(dinput, "*v", SAME, ROWS, "input"),
    MAY(dloss, "?1", F32, DENSE),
    ROW_FACTORS,
    IN(stats, "*3", F32, DENSE),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

/* jsd at either end of beta is the other kind. */
static tigon_divergence_kind kind_of(const tigon_topk_divergence_options *o) {
  if (o->kind != TIGON_DIVERGENCE_JSD) return o->kind;
  const float beta = (float)o->beta;
  return beta == 0 ? TIGON_DIVERGENCE_KL : beta == 1 ? TIGON_DIVERGENCE_REVERSE_KL : TIGON_DIVERGENCE_JSD;
}

/* What both entries have; out NULL: backward. */
typedef struct call {
  const tigon_tensor *input, *target, *ids, *labels, *dinput, *dloss, *error;
  const tigon_topk_divergence_options *options;
  const tigon_topk_divergence_outputs *out;
  double grad_scale;
} call;
#define CALL_OF(a)                                                                               \
  .input = &(a)->input, .target = &(a)->target, .ids = &(a)->target_ids, .labels = &(a)->labels, \
  .dinput = &(a)->dinput, .dloss = &(a)->dloss, .options = &(a)->options, .grad_scale = (a)->grad_scale

static tigon_status prepare(tigon_context *context, const call *c, char *workspace, tigon_topk_divergence_problem *p,
                            size_t *bytes) {
  const tigon_topk_divergence_options *o = c->options;
  tigon_reduced reduced = {.reduction = o->reduction, .rows_of = c->input, .dloss = c->dloss};
  if (c->out) reduced.loss = &c->out->loss, reduced.token_loss = &c->out->token_loss;
  TIGON_TRY(tigon_check_reduction(context, &reduced));
  if (o->reduction != TIGON_REDUCTION_MEAN && tigon_present(&o->denominator))
    return tigon_refuse(context, "options.denominator is there, must be absent but with options.reduction mean");
  const double squared = o->temperature * o->temperature;
  if (o->by_temperature_squared && o->temperature != 0 && !(squared >= FLT_MIN && squared <= FLT_MAX))
    return tigon_refuse(context, "options.temperature is %g, must have a square that is a normal f32", o->temperature);
  if (tigon_last_extent(c->target) > INT32_MAX)
    return tigon_refuse(context, "target.shape[%d] is %lld, must be below 2^31", c->target->ndim - 1,
                        (long long)tigon_last_extent(c->target));
  const tigon_divergence_kind kind = kind_of(o);
  *p = (tigon_topk_divergence_problem){
      .dtype = c->input->dtype,
      .base =
          {
              .cols = tigon_last_extent(c->input),
              .dtype = c->input->dtype,
              .label_dtype = c->labels->dtype,
              .labels = c->labels->data,
              .token_scale = o->token_scale.data,
              .denominator = o->denominator.data,
              .dloss = c->dloss->data,
              .kind = kind,
              .target_is = o->target_is,
              .ignore_index = o->ignore_index,
              .beta = (float)o->beta,
              .inverse_temperature = o->temperature != 0 ? (float)(1 / o->temperature) : 1,
              .soft = o->by_temperature_squared && o->temperature != 0 ? (float)squared : 1,
              .grad_scale = c->grad_scale != 0 ? (float)c->grad_scale : 1,
              .reduction = o->reduction,
          },
      .target_dtype = c->target->dtype,
      .id_dtype = c->ids->dtype,
      .k = tigon_last_extent(c->target),
      .tail = o->tail || kind != TIGON_DIVERGENCE_KL,
      .least_tail = o->least_tail,
  };
  tigon_divergence_problem *base = &p->base;
  TIGON_TRY(TIGON_COLLAPSE(context, &base->space, {c->input, &base->input}, {c->target, &base->target},
                           {c->ids, &p->ids}, {c->dinput, &base->dinput}));
  if (base->space.rows > INT64_MAX / 16)
    return tigon_refuse(context, "input has more rows than a workspace can hold numbers for");
  base->inverse = tigon_cut(workspace, bytes, sizeof *base->inverse);
  if (c->out) {
    base->loss = c->out->loss.data;
    base->stats = c->out->stats.data;
    base->token_loss = tigon_present(&c->out->token_loss)
                           ? c->out->token_loss.data
                           : tigon_cut(workspace, bytes, (size_t)base->space.rows * sizeof *base->token_loss);
  }
  return tigon_check_indices(context, "target_ids", c->ids, tigon_last_dim("input", c->input), false, 0, c->error,
                             &p->error_flag);
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_topk_divergence_fwd_args *a,
                                tigon_topk_divergence_problem *p, size_t *bytes) {
  const call c = {CALL_OF(a), .out = &a->out, .error = &a->out.error};
  return prepare(context, &c, a->workspace, p, bytes);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_topk_divergence_bwd_args *a,
                                tigon_topk_divergence_problem *p, size_t *bytes) {
  const call c = {CALL_OF(a), .error = &a->error};
  TIGON_TRY(prepare(context, &c, a->workspace, p, bytes));
  p->base.stats = a->stats.data;
  return TIGON_OK;
}

/* Without rows the loss is written still. */
TIGON_ENTRY_WITH_WORKSPACE(topk_divergence, fwd, fwd, prepare_fwd, false)
TIGON_ENTRY_WITH_WORKSPACE(topk_divergence, bwd, bwd, prepare_bwd, TIGON_NO_ELEMENTS(p.base))
