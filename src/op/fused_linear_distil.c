/* Distillation through a head: what the loop of fused_linear_cross_entropy calls in the place of cross_entropy, and what both
 * fronts do with their arguments. */
#include "op/fused_linear_distil.h"

void tigon_distil_cut(fused *f, bool stats, char *workspace, size_t *used) {
  head_distil *d = f->more.distil;
  const size_t words = (size_t)f->rows * sizeof(float);
  if (d->has_soft_loss) d->loss.soft_losses = tigon_cut(workspace, used, words);
  if (d->has_hard_loss) d->loss.hard_losses = tigon_cut(workspace, used, words);
  if (stats) d->loss.stats = tigon_cut(workspace, used, 3 * words);
  if (stats && d->loss.hard != 0) d->loss.hard_lse = tigon_cut(workspace, used, words);
}

tigon_status tigon_distil_check_slots(const fused *f) {
  const tigon_dtype dtype = f->loss.dtype;
  if (f->more.distil->lists) {
    TIGON_TRY(TIGON_REQUIRE_SLOT(f->context, topk_divergence_fwd, dtype));
    if (f->panel) TIGON_TRY(TIGON_REQUIRE_SLOT(f->context, topk_divergence_bwd, dtype));
  } else if (f->panel) {
    TIGON_TRY(TIGON_REQUIRE_SLOT(f->context, divergence_bwd, dtype));
  }
  return TIGON_REQUIRE_SLOT(f->context, divergence_fwd, dtype);
}

/* A skipped token's ids are looked at as well. */
static void raise_error(const tigon_topk_divergence_problem *p, int64_t r, int64_t vocab) {
  const tigon_vector ids = {p->ids.data, p->id_dtype};
  for (int64_t j = 0; p->error_flag && j < p->k; ++j) {
    const int64_t v = tigon_vector_index(ids, r * p->k + j);
    if (v < 0 || v >= vocab) *p->error_flag = 1;
  }
}

void tigon_distil_clear(const fused *f, int64_t r) {
  if (f->more.distil->lists) raise_error(&f->more.distil->entries, r, f->vocab);
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

/* Rows from r on of a teacher's entries. */
static tigon_status run_lists(const fused *f, tigon_divergence_problem p, int64_t r, bool backward) {
  tigon_topk_divergence_problem t = f->more.distil->entries;
  const int64_t pitch = t.base.target.pitch[2], of_target = r * pitch * (int64_t)tigon_dtype_size(t.target_dtype);
  p.target_is = t.base.target_is;
  p.target = (tigon_rows){(char *)t.base.target.data + of_target, {0, 0, pitch}};
  t.ids = (tigon_rows){(char *)t.ids.data + r * t.k * (int64_t)tigon_dtype_size(t.id_dtype), {0, 0, t.k}};
  t.dtype = p.dtype;
  t.base = p;
  return backward ? TIGON_CALL_FOUND_SLOT(f->context, topk_divergence_bwd, p.dtype, &t)
                  : TIGON_CALL_FOUND_SLOT(f->context, topk_divergence_fwd, p.dtype, &t);
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
  if (f->more.distil->lists) return run_lists(f, p, r, backward);
  return backward ? TIGON_CALL_FOUND_SLOT(f->context, divergence_bwd, f->loss.dtype, &p)
                  : TIGON_CALL_FOUND_SLOT(f->context, divergence_fwd, f->loss.dtype, &p);
}

static tigon_status run_part(const fused *f, int part, float *token_loss, float *loss) {
  tigon_divergence_problem p = problem_of(f);
  p.parts = part;
  p.token_loss = token_loss;
  p.loss = loss;
  return TIGON_CALL_FOUND_SLOT(f->context, divergence_fwd, f->loss.dtype, &p);
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

/* ---- for the fronts ---- */

/* What the kernels multiply products by is an f32. */
tigon_status tigon_distil_map(tigon_context *context, const char *of, double cap, double scale, double temperature,
                              tigon_logit_map *map) {
  *map = (tigon_logit_map){(float)cap, (float)scale};
  const double by = (scale != 0 ? scale : 1) / (cap != 0 ? cap : temperature != 0 ? temperature : 1);
  if (by >= FLT_MIN && by <= FLT_MAX) return TIGON_OK;
  return tigon_refuse(context, "%slogit_scale divided by %s%s is %g, must be a normal f32", of, cap != 0 ? of : "",
                      cap != 0 ? "softcap" : "temperature", by);
}

tigon_status tigon_distil_prepare(tigon_context *context, const distil_args *a, head_distil *d) {
  const head_args *head = &a->head;
  const double temperature = a->temperature != 0 ? a->temperature : 1,
               weight = a->weight_soft != 0 ? a->weight_soft : 1;
  const double soft = a->by_temperature_squared ? weight * temperature * temperature : weight;
  const int64_t vocab = head->weight.shape[0];
  if (!(soft >= FLT_MIN && soft <= FLT_MAX))
    return tigon_refuse(context, "weight_soft times the square of temperature is %g, must be a normal f32", soft);
  if (a->weight_hard != 0 && !tigon_present(&head->labels))
    return tigon_refuse(context, "labels is absent, must be there with weight_hard");
  *d = (head_distil){
      .loss = {.cols = vocab,
               .target_cols = vocab,
               .dtype = head->logits_in_f32 ? TIGON_F32 : head->hidden.dtype,
               .label_dtype = head->labels.dtype,
               .labels = head->labels.data,
               .token_scale = a->token_scale.data,
               .denominator = head->options.denominator.data,
               .dloss = a->dloss.data,
               .kind = tigon_divergence_kind_of(a->kind, a->beta),
               .classes = true,
               .ignore_index = head->options.has_ignore_index ? head->options.ignore_index : -1,
               .beta = (float)a->beta,
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
  return tigon_distil_map(context, "", a->softcap, a->logit_scale, a->temperature, &d->loss.input_map);
}

tigon_status tigon_distil_call(tigon_context *context, const distil_args *a, head_distil *d, size_t *least,
                               size_t *good) {
  return tigon_head_call(context, &a->head, true, &(head_more){.distil = d}, least, good);
}
