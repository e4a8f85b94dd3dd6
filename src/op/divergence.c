#include "op/divergence.h"

#define INPUTS IN(input, "*v", SAME, ROWS), IN(target, "*v", SAME, ROWS), MAY(labels, "@", INTEGER, DENSE)
#define NUMBERS                                                                                              \
  CHOICE(options.kind, TIGON_DIVERGENCE_COSINE), CHOICE(options.input_is, TIGON_DISTRIBUTION_PROBABILITIES), \
      DIVERGENCE_NUMBERS, FINITE(grad_scale), RESERVED(options.reserved)

#define A tigon_divergence_fwd_args
static const tigon_field fwd[] = {
    INPUTS,
    WANT(dinput, "*v", SAME, ROWS, "input target"),
    DIVERGENCE_FACTORS,
    DIVERGENCE_OUTPUTS,
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_divergence_bwd_args
static const tigon_field bwd[] = {
    INPUTS,
    OUT(dinput, "*v", SAME, ROWS, "input target"),
    DIVERGENCE_FACTORS,
    IN(stats, "*3", F32, DENSE),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

tigon_status tigon_check_divergence(tigon_context *context, const tigon_divergence_args *a,
                                    tigon_divergence_problem *p) {
  const tigon_reduced reduced = {a->reduction, a->input, a->dloss, a->loss, a->token_loss, a->denominator};
  TIGON_TRY(tigon_check_reduction(context, &reduced));
  const double squared = a->temperature * a->temperature;
  const bool by_square = a->by_temperature_squared && a->temperature != 0;
  if (by_square && !(squared >= FLT_MIN && squared <= FLT_MAX))
    return tigon_refuse(context, "options.temperature is %g, must have a square that is a normal f32", a->temperature);
  *p = (tigon_divergence_problem){
      .parts = TIGON_DIVERGENCE_ALL,
      .cols = tigon_last_extent(a->input),
      .target_cols = tigon_last_extent(a->input),
      .dtype = a->input->dtype,
      .label_dtype = a->labels->dtype,
      .labels = a->labels->data,
      .token_scale = a->token_scale->data,
      .denominator = a->denominator->data,
      .dloss = a->dloss->data,
      .stats = a->stats,
      .loss = a->loss ? a->loss->data : NULL,
      .kind = tigon_divergence_kind_of(a->kind, a->beta),
      .input_is = a->input_is,
      .target_is = a->target_is,
      .ignore_index = a->ignore_index,
      .beta = (float)a->beta,
      .inverse_temperature = a->temperature != 0 ? (float)(1 / a->temperature) : 1,
      .soft = by_square ? (float)squared : 1,
      .grad_scale = a->grad_scale != 0 ? (float)a->grad_scale : 1,
      .reduction = a->reduction,
  };
  return TIGON_OK;
}

tigon_status tigon_cut_divergence(tigon_context *context, const tigon_divergence_args *a, tigon_divergence_problem *p,
                                  size_t *bytes) {
  if (p->space.rows > INT64_MAX / 16)
    return tigon_refuse(context, "input has more rows than a workspace can hold numbers for");
  p->inverse = tigon_cut(a->workspace, bytes, sizeof *p->inverse);
  if (a->loss)
    p->token_loss = tigon_present(a->token_loss)
                        ? a->token_loss->data
                        : tigon_cut(a->workspace, bytes, (size_t)p->space.rows * sizeof *p->token_loss);
  return TIGON_OK;
}

/* A call of either entry. */
static tigon_status prepare(tigon_context *context, const tigon_divergence_args *a, tigon_divergence_problem *p,
                            size_t *bytes) {
  TIGON_TRY(tigon_check_divergence(context, a, p));
  TIGON_TRY(
      TIGON_COLLAPSE(context, &p->space, {a->input, &p->input}, {a->target, &p->target}, {a->dinput, &p->dinput}));
  return tigon_cut_divergence(context, a, p, bytes);
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_divergence_fwd_args *a, tigon_divergence_problem *p,
                                size_t *bytes) {
  const tigon_divergence_args args = {DIVERGENCE_ARGS, DIVERGENCE_FORWARD, .input_is = a->options.input_is};
  return prepare(context, &args, p, bytes);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_divergence_bwd_args *a, tigon_divergence_problem *p,
                                size_t *bytes) {
  const tigon_divergence_args args = {DIVERGENCE_ARGS, DIVERGENCE_BACKWARD, .input_is = a->options.input_is};
  return prepare(context, &args, p, bytes);
}

/* Without rows the loss is written still. */
TIGON_ENTRY_WITH_WORKSPACE(divergence, fwd, fwd, prepare_fwd, false)
TIGON_ENTRY_WITH_WORKSPACE(divergence, bwd, bwd, prepare_bwd, TIGON_NO_ELEMENTS(p))
