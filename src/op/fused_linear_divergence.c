/* This front puts the teacher's logits and divergence in the place of cross_entropy. */
#include <tigon/op/fused_linear_divergence.h>

#include "op/fused_linear_distil.h"

typedef tigon_fused_linear_divergence_fwd_args arguments;

#define A tigon_fused_linear_divergence_fwd_args
static const tigon_field fwd[] = {
    IN(hidden, "*h", SAME, ROWS),
    IN(weight, "vh", SAME_GIVES_SECOND, ROWS),
    MAY(bias, "v", SAME_OR_F32, DENSE),
    IN(teacher_hidden, "*d", SAME, ROWS),
    IN(teacher_weight, "?vd", SAME, ROWS),
    MAY(teacher_bias, "?v", SAME_OR_F32, DENSE),
    DISTIL_TENSORS,
    CHOICE(kind, TIGON_DIVERGENCE_COSINE),
    DISTIL_LOGITS,
    OR_ZERO(teacher_softcap),
    OR_ZERO(teacher_logit_scale),
    DISTIL_WEIGHTS,
    FLAG(truncate_teacher),
    DISTIL_END,
};
DESCRIBE(fused_linear_divergence, fwd, fwd);

static tigon_status check_teacher(tigon_context *context, const arguments *a, int64_t vocab) {
  const tigon_tensor *w = &a->teacher_weight;
  const int64_t width = tigon_last_extent(&a->teacher_hidden);
  if (w->ndim != 2) return tigon_refuse(context, "teacher_weight.ndim is %d, must be 2", w->ndim);
  if (w->shape[1] != width)
    return tigon_refuse(context, "teacher_weight.shape[1] is %lld, must be %lld (teacher_hidden.shape[%d])",
                        (long long)w->shape[1], (long long)width, a->teacher_hidden.ndim - 1);
  if (tigon_present(&a->teacher_bias))
    TIGON_TRY(tigon_check_vector(context, "teacher_bias", &a->teacher_bias, w->shape[0], "teacher_weight.shape[0]"));
  const long long classes = (long long)w->shape[0];
  if (classes == 0 && vocab > 0) return tigon_refuse(context, "teacher_weight.shape[0] is 0, must be 1 or more");
  if (classes > vocab && !a->truncate_teacher)
    return tigon_refuse(
        context, "teacher_weight.shape[0] is %lld, must be at most %lld (weight.shape[0]) without truncate_teacher",
        classes, (long long)vocab);
  const bool reverse = tigon_divergence_kind_of(a->kind, a->beta) == TIGON_DIVERGENCE_REVERSE_KL;
  if (classes < vocab && reverse)
    return tigon_refuse(context,
                        "teacher_weight.shape[0] is %lld, must be %lld (weight.shape[0]) or more with kind reverse_kl",
                        classes, (long long)vocab);
  return TIGON_OK;
}

/* A call, or with `least` a query, whose description holds. */
static tigon_status call(tigon_context *context, const arguments *a, size_t *least, size_t *good) {
  const distil_args args = DISTIL_ARGS(a, least);
  const int64_t vocab = a->weight.shape[0];
  int64_t rows;
  head_distil d;
  TIGON_TRY(check_teacher(context, a, vocab));
  TIGON_TRY(tigon_distil_prepare(context, &args, &d));
  TIGON_TRY(tigon_distil_map(context, "teacher_", a->teacher_softcap, a->teacher_logit_scale, a->temperature,
                             &d.loss.target_map));
  d.teacher = (tigon_linear_fwd_problem){.n = a->teacher_weight.shape[0] < vocab ? a->teacher_weight.shape[0] : vocab,
                                         .k = tigon_last_extent(&a->teacher_hidden),
                                         .dtype = a->hidden.dtype,
                                         .b_dtype = a->teacher_bias.dtype,
                                         .y_dtype = d.loss.dtype,
                                         .x = a->teacher_hidden.data,
                                         .w = a->teacher_weight.data,
                                         .b = a->teacher_bias.data,
                                         .w_pitch = a->teacher_weight.strides[0]};
  TIGON_TRY(TIGON_COLLAPSE_PITCHES(context, &rows, {&a->teacher_hidden, &d.teacher.x_pitch}));
  return tigon_distil_call(context, &args, &d, least, good);
}

TIGON_CALL_AND_RANGE_QUERY(fused_linear_divergence, fwd, call)
