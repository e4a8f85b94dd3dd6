#include <tigon/op/topk_divergence.h>

#include "op/divergence.h"

#define INPUTS                                                                                               \
  IN(input, "*v", SAME, ROWS), IN(target, "*k", SAME_OR_F32, ROWS), IN(target_ids, "*k", INDEX('v'), DENSE), \
      MAY(labels, "@", INTEGER, DENSE)
#define NUMBERS                                                                       \
  CHOICE(options.kind, TIGON_DIVERGENCE_TVD), DIVERGENCE_NUMBERS, FLAG(options.tail), \
      NUMBER(options.least_tail, 0, 1), FINITE(grad_scale), RESERVED(options.reserved)

#define A tigon_topk_divergence_fwd_args
static const tigon_field fwd[] = {
    INPUTS,
    WANT(dinput, "*v", SAME, ROWS, "input"),
    DIVERGENCE_FACTORS,
    DIVERGENCE_OUTPUTS,
    WANT(out.error, "1 a scalar", I32, DENSE, NULL),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_topk_divergence_bwd_args
static const tigon_field bwd[] = {
    INPUTS,
    OUT(dinput, "*v", SAME, ROWS, "input"),
    DIVERGENCE_FACTORS,
    IN(stats, "*3", F32, DENSE),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

/* A call of either entry. */
static tigon_status prepare(tigon_context *context, const tigon_divergence_args *a,
                            const tigon_topk_divergence_options *o, const tigon_tensor *ids, const tigon_tensor *error,
                            tigon_topk_divergence_problem *p, size_t *bytes) {
  *p = (tigon_topk_divergence_problem){
      .dtype = a->input->dtype,
      .target_dtype = a->target->dtype,
      .id_dtype = ids->dtype,
      .k = tigon_last_extent(a->target),
      .least_tail = o->least_tail,
  };
  tigon_divergence_problem *base = &p->base;
  TIGON_TRY(tigon_check_divergence(context, a, base));
  p->tail = o->tail || base->kind != TIGON_DIVERGENCE_KL;
  if (p->k > INT32_MAX)
    return tigon_refuse(context, "target.shape[%d] is %lld, must be below 2^31", a->target->ndim - 1, (long long)p->k);
  TIGON_TRY(TIGON_COLLAPSE(context, &base->space, {a->input, &base->input}, {a->target, &base->target}, {ids, &p->ids},
                           {a->dinput, &base->dinput}));
  TIGON_TRY(tigon_cut_divergence(context, a, base, bytes));
  return tigon_check_indices(context, "target_ids", ids, tigon_last_dim("input", a->input), false, 0, error,
                             &p->error_flag);
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_topk_divergence_fwd_args *a,
                                tigon_topk_divergence_problem *p, size_t *bytes) {
  const tigon_divergence_args args = {DIVERGENCE_ARGS, DIVERGENCE_FORWARD};
  return prepare(context, &args, &a->options, &a->target_ids, &a->out.error, p, bytes);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_topk_divergence_bwd_args *a,
                                tigon_topk_divergence_problem *p, size_t *bytes) {
  const tigon_divergence_args args = {DIVERGENCE_ARGS, DIVERGENCE_BACKWARD};
  return prepare(context, &args, &a->options, &a->target_ids, &a->error, p, bytes);
}

/* Without rows the loss is written still. */
TIGON_ENTRY_WITH_WORKSPACE(topk_divergence, fwd, fwd, prepare_fwd, false)
TIGON_ENTRY_WITH_WORKSPACE(topk_divergence, bwd, bwd, prepare_bwd, TIGON_NO_ELEMENTS(p.base))
