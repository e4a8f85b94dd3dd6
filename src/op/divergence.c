#include <tigon/op/divergence.h>

#include "op/loss.h"

#define NUMBERS                                                                                                 \
  CHOICE(options.kind, TIGON_DIVERGENCE_COSINE), CHOICE(options.input_is, TIGON_DISTRIBUTION_PROBABILITIES),    \
      CHOICE(options.target_is, TIGON_DISTRIBUTION_PROBABILITIES), NUMBER(options.beta, 0, 1),                  \
      OR_ZERO(options.temperature), ANY(options.ignore_index), CHOICE(options.reduction, TIGON_REDUCTION_NONE), \
      FLAG(options.by_temperature_squared), FINITE(grad_scale), RESERVED(options.reserved)
#define ROW_FACTORS MAY(options.token_scale, "@", F32, DENSE), MAY(options.denominator, "1 a scalar", F32, DENSE)

#define A tigon_divergence_fwd_args
static const tigon_field fwd[] = {
    IN(input, "*v", SAME, ROWS),
    IN(target, "*v", SAME, ROWS),
    MAY(labels, "@", INTEGER, DENSE),
    WANT(dinput, "*v", SAME, ROWS, "input target"),
    MAY(dloss, "?1", F32, DENSE),
    ROW_FACTORS,
    WANT(out.loss, "1 a scalar", F32, DENSE, NULL),
    WANT(out.token_loss, "@", F32, DENSE, NULL),
    WANT(out.stats, "*3", F32, DENSE, NULL),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_divergence_bwd_args
static const tigon_field bwd[] = {
    IN(input, "*v", SAME, ROWS),
    IN(target, "*v", SAME, ROWS),
    MAY(labels, "@", INTEGER, DENSE),
    OUT(dinput, "*v", SAME, ROWS, "input target"),
    MAY(dloss, "?1", F32, DENSE),
    ROW_FACTORS,
    IN(stats, "*3", F32, DENSE),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

/* jsd at either end of beta is the other kind. */
static tigon_divergence_kind kind_of(const tigon_divergence_options *o) {
  if (o->kind != TIGON_DIVERGENCE_JSD) return o->kind;
  const float beta = (float)o->beta;
  return beta == 0 ? TIGON_DIVERGENCE_KL : beta == 1 ? TIGON_DIVERGENCE_REVERSE_KL : TIGON_DIVERGENCE_JSD;
}

/* What both entries have; out NULL: backward. */
typedef struct call {
  const tigon_tensor *input, *target, *labels, *dinput, *dloss;
  const tigon_divergence_options *options;
  const tigon_divergence_outputs *out;
  double grad_scale;
} call;
#define CALL_OF(a)                                                                                                    \
  .input = &(a)->input, .target = &(a)->target, .labels = &(a)->labels, .dinput = &(a)->dinput, .dloss = &(a)->dloss, \
  .options = &(a)->options, .grad_scale = (a)->grad_scale

static tigon_status prepare(tigon_context *context, const call *c, char *workspace, tigon_divergence_problem *p,
                            size_t *bytes) {
  const tigon_divergence_options *o = c->options;
  tigon_reduced reduced = {.reduction = o->reduction, .rows_of = c->input, .dloss = c->dloss};
  if (c->out) reduced.loss = &c->out->loss, reduced.token_loss = &c->out->token_loss;
  TIGON_TRY(tigon_check_reduction(context, &reduced));
  if (o->reduction != TIGON_REDUCTION_MEAN && tigon_present(&o->denominator))
    return tigon_refuse(context, "options.denominator is there, must be absent but with options.reduction mean");
  const double squared = o->temperature * o->temperature;
  if (o->by_temperature_squared && o->temperature != 0 && !(squared >= FLT_MIN && squared <= FLT_MAX))
    return tigon_refuse(context, "options.temperature is %g, must have a square that is a normal f32", o->temperature);
  *p = (tigon_divergence_problem){
      .parts = TIGON_DIVERGENCE_ALL,
      .cols = tigon_last_extent(c->input),
      .target_cols = tigon_last_extent(c->input),
      .dtype = c->input->dtype,
      .label_dtype = c->labels->dtype,
      .labels = c->labels->data,
      .token_scale = o->token_scale.data,
      .denominator = o->denominator.data,
      .dloss = c->dloss->data,
      .kind = kind_of(o),
      .input_is = o->input_is,
      .target_is = o->target_is,
      .ignore_index = o->ignore_index,
      .beta = (float)o->beta,
      .inverse_temperature = o->temperature != 0 ? (float)(1 / o->temperature) : 1,
      .soft = o->by_temperature_squared && o->temperature != 0 ? (float)squared : 1,
      .grad_scale = c->grad_scale != 0 ? (float)c->grad_scale : 1,
      .reduction = o->reduction,
  };
  TIGON_TRY(
      TIGON_COLLAPSE(context, &p->space, {c->input, &p->input}, {c->target, &p->target}, {c->dinput, &p->dinput}));
  if (p->space.rows > INT64_MAX / 16)
    return tigon_refuse(context, "input has more rows than a workspace can hold numbers for");
  p->inverse = tigon_cut(workspace, bytes, sizeof *p->inverse);
  if (!c->out) return TIGON_OK;
  p->loss = c->out->loss.data;
  p->stats = c->out->stats.data;
  p->token_loss = tigon_present(&c->out->token_loss)
                      ? c->out->token_loss.data
                      : tigon_cut(workspace, bytes, (size_t)p->space.rows * sizeof *p->token_loss);
  return TIGON_OK;
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_divergence_fwd_args *a, tigon_divergence_problem *p,
                                size_t *bytes) {
  const call c = {CALL_OF(a), .out = &a->out};
  return prepare(context, &c, a->workspace, p, bytes);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_divergence_bwd_args *a, tigon_divergence_problem *p,
                                size_t *bytes) {
  const call c = {CALL_OF(a)};
  TIGON_TRY(prepare(context, &c, a->workspace, p, bytes));
  p->stats = a->stats.data;
  return TIGON_OK;
}

/* Without rows the loss is written still. */
TIGON_ENTRY_WITH_WORKSPACE(divergence, fwd, fwd, prepare_fwd, false)
TIGON_ENTRY_WITH_WORKSPACE(divergence, bwd, bwd, prepare_bwd, TIGON_NO_ELEMENTS(p))
