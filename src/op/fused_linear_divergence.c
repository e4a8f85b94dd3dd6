/* This front has the arguments of fused_linear_cross_entropy's head, which works off the chunks of tokens, and puts the
 * teacher's logits and divergence in the place of cross_entropy. */
#include <tigon/op/fused_linear_divergence.h>

#include "op/fused_linear_cross_entropy.h"

typedef tigon_fused_linear_divergence_fwd_args arguments;

#define A tigon_fused_linear_divergence_fwd_args
static const tigon_field fwd[] = {
    IN(hidden, "*h", SAME, ROWS),
    IN(weight, "vh", SAME_GIVES_SECOND, ROWS),
    MAY(bias, "v", SAME_OR_F32, DENSE),
    IN(teacher_hidden, "*d", SAME, ROWS),
    IN(teacher_weight, "?vd", SAME, ROWS),
    MAY(teacher_bias, "?v", SAME_OR_F32, DENSE),
    MAY(labels, "@", INDEX('v'), DENSE),
    MAY(token_scale, "@", F32, DENSE),
    MAY(denominator, "1 a scalar", F32, DENSE),
    MAY(dloss, "1 a scalar", F32, DENSE),
    OUT(loss, "1 a scalar", F32, DENSE, NULL),
    WANT(soft_loss, "1 a scalar", F32, DENSE, NULL),
    WANT(hard_loss, "1 a scalar", F32, DENSE, NULL),
    WANT(token_loss, "@", F32, DENSE, NULL),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    WANT(dhidden, "*h", SAME, ROWS, "hidden"),
    WANT(dweight, "vh", SECOND_OR_F32, ROWS, NULL),
    WANT(dbias, "v", SECOND_OR_F32, DENSE, NULL),
    CHOICE(kind, TIGON_DIVERGENCE_COSINE),
    NUMBER(beta, 0, 1),
    OR_ZERO(temperature),
    OR_ZERO(softcap),
    OR_ZERO(logit_scale),
    OR_ZERO(teacher_softcap),
    OR_ZERO(teacher_logit_scale),
    OR_ZERO(weight_soft),
    NUMBER(weight_hard, 0, FLT_MAX),
    FLAG(has_ignore_index),
    ANY(ignore_index),
    FLAG(by_temperature_squared),
    FLAG(truncate_teacher),
    FLAG(logits_in_f32),
    FLAG(accumulate_dweight),
    FINITE(grad_scale),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(fused_linear_divergence, fwd, fwd);

/* ---- what the head's loop calls ---- */

void tigon_distil_cut(fused *f, bool stats, char *workspace, size_t *used) {
  head_distil *d = f->more.distil;
  const size_t words = (size_t)f->rows * sizeof(float);
  if (d->has_soft_loss) d->loss.soft_losses = tigon_cut(workspace, used, words);
  if (d->has_hard_loss) d->loss.hard_losses = tigon_cut(workspace, used, words);
  if (stats) d->loss.stats = tigon_cut(workspace, used, 3 * words);
  if (stats && d->loss.hard != 0) d->loss.hard_lse = tigon_cut(workspace, used, words);
}

tigon_status tigon_distil_check_slots(const fused *f) {
  if (f->panel) TIGON_TRY(TIGON_REQUIRE_SLOT(f->context, divergence_bwd, f->loss.dtype));
  return TIGON_REQUIRE_SLOT(f->context, divergence_fwd, f->loss.dtype);
}

void tigon_distil_clear(const fused *f, int64_t r) {
  const tigon_divergence_problem *p = &f->more.distil->loss;
  if (p->soft_losses) p->soft_losses[r] = 0;
  if (p->hard_losses) p->hard_losses[r] = 0;
}

int64_t tigon_distil_classes(const fused *f, const logits *l) {
  const int64_t left = f->more.distil->teacher.n - l->from;
  return left < 0 ? 0 : left < l->cols ? left : l->cols;
}

/* All rows', whose row outputs are the call's. */
static tigon_divergence_problem problem_of(const fused *f) {
  tigon_divergence_problem p = f->more.distil->loss;
  p.space = f->loss.space;
  p.inverse = f->loss.inverse;
  p.token_loss = f->loss.token_loss;
  return p;
}

tigon_status tigon_distil_rows(const fused *f, const logits *l, int64_t r, int64_t i, int64_t n, bool backward,
                               bool gradients) {
  const int64_t size = (int64_t)tigon_dtype_size(f->loss.dtype), at = i * l->cols * size;
  tigon_divergence_problem p = problem_of(f);
  p.parts = TIGON_DIVERGENCE_ROWS;
  p.space = (tigon_row_space){n, 1, n};
  p.cols = l->cols;
  p.target_cols = tigon_distil_classes(f, l);
  p.panel_begin = l->from;
  p.vocab = l->cols < f->vocab ? f->vocab : 0;
  p.input = (tigon_rows){l->own + at, {0, 0, l->cols}};
  p.target = (tigon_rows){f->space->rounded + at, {0, 0, l->cols}};
  if (gradients) p.dinput = p.input;
  if (p.labels) p.labels = (const char *)p.labels + r * (int64_t)tigon_dtype_size(p.label_dtype);
  if (p.token_scale) p.token_scale += r;
  p.token_loss += r;
  if (p.soft_losses) p.soft_losses += r;
  if (p.hard_losses) p.hard_losses += r;
  if (p.stats) p.stats += 3 * r;
  if (p.hard_lse) p.hard_lse += r;
  return backward ? TIGON_CALL_SLOT(f->context, divergence_bwd, f->loss.dtype, &p)
                  : TIGON_CALL_SLOT(f->context, divergence_fwd, f->loss.dtype, &p);
}

static tigon_status run_part(const fused *f, int part, float *token_loss, float *loss) {
  tigon_divergence_problem p = problem_of(f);
  p.parts = part;
  p.token_loss = token_loss;
  p.loss = loss;
  return TIGON_CALL_SLOT(f->context, divergence_fwd, f->loss.dtype, &p);
}

tigon_status tigon_distil_count(const fused *f) {
  return run_part(f, TIGON_DIVERGENCE_COUNT, f->loss.token_loss, NULL);
}

tigon_status tigon_distil_reduce(const fused *f) {
  const head_distil *d = f->more.distil;
  TIGON_TRY(run_part(f, TIGON_DIVERGENCE_REDUCE, f->loss.token_loss, f->loss.loss));
  if (d->soft_loss) TIGON_TRY(run_part(f, TIGON_DIVERGENCE_REDUCE, d->loss.soft_losses, d->soft_loss));
  return d->hard_loss ? run_part(f, TIGON_DIVERGENCE_REDUCE, d->loss.hard_losses, d->hard_loss) : TIGON_OK;
}

/* ---- the front ---- */

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
  const bool reverse =
      a->kind == TIGON_DIVERGENCE_REVERSE_KL || (a->kind == TIGON_DIVERGENCE_JSD && (float)a->beta == 1);
  if (classes < vocab && reverse)
    return tigon_refuse(context,
                        "teacher_weight.shape[0] is %lld, must be %lld (weight.shape[0]) or more with kind reverse_kl",
                        classes, (long long)vocab);
  return TIGON_OK;
}

/* What the kernels multiply a side's products by is an f32. */
static tigon_status map_logits(tigon_context *context, const char *of, double cap, double scale, double temperature,
                               tigon_logit_map *map) {
  *map = (tigon_logit_map){(float)cap, (float)scale};
  const double by = (scale != 0 ? scale : 1) / (cap != 0 ? cap : temperature);
  if (by >= FLT_MIN && by <= FLT_MAX) return TIGON_OK;
  return tigon_refuse(context, "%slogit_scale divided by %s%s is %g, must be a normal f32", of, cap != 0 ? of : "",
                      cap != 0 ? "softcap" : "temperature", by);
}

static tigon_status prepare(tigon_context *context, const arguments *a, int64_t vocab, head_distil *d) {
  const double temperature = a->temperature != 0 ? a->temperature : 1,
               weight = a->weight_soft != 0 ? a->weight_soft : 1;
  const double soft = a->by_temperature_squared ? weight * temperature * temperature : weight;
  const float beta = (float)a->beta;
  const tigon_dtype logits = a->logits_in_f32 ? TIGON_F32 : a->hidden.dtype;
  const bool jsd = a->kind == TIGON_DIVERGENCE_JSD;
  if (!(soft >= FLT_MIN && soft <= FLT_MAX))
    return tigon_refuse(context, "weight_soft times the square of temperature is %g, must be a normal f32", soft);
  if (a->weight_hard != 0 && !tigon_present(&a->labels))
    return tigon_refuse(context, "labels is absent, must be there with weight_hard");
  *d = (head_distil){
      .teacher = {.n = a->teacher_weight.shape[0] < vocab ? a->teacher_weight.shape[0] : vocab,
                  .k = tigon_last_extent(&a->teacher_hidden),
                  .dtype = a->hidden.dtype,
                  .b_dtype = a->teacher_bias.dtype,
                  .y_dtype = logits,
                  .x = a->teacher_hidden.data,
                  .w = a->teacher_weight.data,
                  .b = a->teacher_bias.data,
                  .w_pitch = a->teacher_weight.strides[0]},
      .loss = {.cols = vocab,
               .target_cols = vocab,
               .dtype = logits,
               .label_dtype = a->labels.dtype,
               .labels = a->labels.data,
               .token_scale = a->token_scale.data,
               .denominator = a->denominator.data,
               .dloss = a->dloss.data,
               .kind = !jsd        ? a->kind
                       : beta == 0 ? TIGON_DIVERGENCE_KL
                       : beta == 1 ? TIGON_DIVERGENCE_REVERSE_KL
                                   : a->kind,
               .classes = true,
               .ignore_index = a->has_ignore_index ? a->ignore_index : -1,
               .beta = beta,
               .inverse_temperature = (float)(1 / temperature),
               .soft = (float)soft,
               .hard = (float)a->weight_hard,
               .grad_scale = a->grad_scale != 0 ? (float)a->grad_scale : 1,
               .reduction = TIGON_REDUCTION_MEAN},
      .has_soft_loss = tigon_present(&a->soft_loss),
      .has_hard_loss = tigon_present(&a->hard_loss),
      .soft_loss = a->soft_loss.data,
      .hard_loss = a->hard_loss.data,
  };
  TIGON_TRY(map_logits(context, "", a->softcap, a->logit_scale, temperature, &d->loss.input_map));
  TIGON_TRY(map_logits(context, "teacher_", a->teacher_softcap, a->teacher_logit_scale, temperature,
                       &d->loss.target_map));
  int64_t rows;
  return TIGON_COLLAPSE_PITCHES(context, &rows, {&a->teacher_hidden, &d->teacher.x_pitch});
}

/* A call, or with `least` a query, whose description holds. */
static tigon_status call(tigon_context *context, const arguments *a, size_t *least, size_t *good) {
  head_distil distil;
  const head_more more = {.distil = &distil};
  const head_args head = {.hidden = a->hidden,
                          .weight = a->weight,
                          .bias = a->bias,
                          .labels = a->labels,
                          .options = {.has_ignore_index = a->has_ignore_index,
                                      .ignore_index = a->ignore_index,
                                      .denominator = a->denominator},
                          .out = {.loss = a->loss, .token_loss = a->token_loss, .error = a->error},
                          .dhidden = a->dhidden,
                          .dweight = a->dweight,
                          .dbias = a->dbias,
                          .accumulate_dweight = a->accumulate_dweight,
                          .logits_in_f32 = a->logits_in_f32,
                          .workspace = least ? NULL : a->workspace,
                          .workspace_bytes = a->workspace_bytes};
  TIGON_TRY(check_teacher(context, a, a->weight.shape[0]));
  TIGON_TRY(prepare(context, a, a->weight.shape[0], &distil));
  return tigon_head_call(context, &head, true, &more, least, good);
}

HEAD_ENTRY(fused_linear_divergence, fwd, call)
