/* This front puts topk_divergence in the place of cross_entropy. */
#include <tigon/op/fused_linear_topk_divergence.h>

#include "op/fused_linear_distil.h"

typedef tigon_fused_linear_topk_divergence_fwd_args arguments;

#define A tigon_fused_linear_topk_divergence_fwd_args
static const tigon_field fwd[] = {
    IN(hidden, "*h", SAME, ROWS),
    IN(weight, "vh", SAME_GIVES_SECOND, ROWS),
    MAY(bias, "v", SAME_OR_F32, DENSE),
    IN(target, "*k", SAME_OR_F32, ROWS),
    IN(target_ids, "*k", INDEX('v'), DENSE),
    DISTIL_TENSORS,
    CHOICE(kind, TIGON_DIVERGENCE_TVD),
    CHOICE(target_is, TIGON_DISTRIBUTION_PROBABILITIES),
    DISTIL_LOGITS,
    FLAG(tail),
    NUMBER(least_tail, 0, 1),
    DISTIL_WEIGHTS,
    DISTIL_END,
};
DESCRIBE(fused_linear_topk_divergence, fwd, fwd);

/* A call, or with `least` a query, whose description holds. */
static tigon_status call(tigon_context *context, const arguments *a, size_t *least, size_t *good) {
  const distil_args args = DISTIL_ARGS(a, least);
  const int64_t k = tigon_last_extent(&a->target);
  int64_t rows;
  head_distil d;
  TIGON_TRY(tigon_distil_prepare(context, &args, &d));
  if (k > INT32_MAX)
    return tigon_refuse(context, "target.shape[%d] is %lld, must be below 2^31", a->target.ndim - 1, (long long)k);
  d.lists = true;
  d.entries = (tigon_topk_divergence_problem){.base = {.target = {.data = a->target.data}, .target_is = a->target_is},
                                              .target_dtype = a->target.dtype,
                                              .id_dtype = a->target_ids.dtype,
                                              .ids = {.data = a->target_ids.data},
                                              .k = k,
                                              .tail = a->tail || d.loss.kind != TIGON_DIVERGENCE_KL,
                                              .least_tail = a->least_tail};
  TIGON_TRY(TIGON_COLLAPSE_PITCHES(context, &rows, {&a->target, &d.entries.base.target.pitch[2]}));
  if (!least)
    TIGON_TRY(tigon_check_indices(context, "target_ids", &a->target_ids, (tigon_dim){"weight", &a->weight, 0}, false, 0,
                                  &a->error, &d.entries.error_flag));
  return tigon_distil_call(context, &args, &d, least, good);
}

TIGON_CALL_AND_RANGE_QUERY(fused_linear_topk_divergence, fwd, call)
