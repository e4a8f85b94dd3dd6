/* What losses check and lay out alike. */
#include <inttypes.h>

#include "core/labels.h"
#include "op/loss.h"

/* loss and token_loss are there or not as the reduction asks. */
static tigon_status check_presence(tigon_context *context, const tigon_reduced *a) {
  const bool none = a->reduction == TIGON_REDUCTION_NONE, has_loss = tigon_present(a->loss);
  if (none && has_loss) return tigon_refuse(context, "out.loss is there, must be absent with options.reduction none");
  if (none && !tigon_present(a->token_loss))
    return tigon_refuse(context, "out.token_loss is absent, must be there with options.reduction none");
  if (!none && !has_loss)
    return tigon_refuse(context, "out.loss is absent, must be there but with options.reduction none");
  return TIGON_OK;
}

tigon_status tigon_check_reduction(tigon_context *context, const tigon_reduced *a) {
  if (a->loss) TIGON_TRY(check_presence(context, a));
  if (a->reduction == TIGON_REDUCTION_NONE)
    TIGON_TRY(tigon_check_per_row(context, "dloss", a->dloss, context->checked->fields[0].name, a->rows_of));
  else
    TIGON_TRY(tigon_check_vector(context, "dloss", a->dloss, 1, "unless options.reduction is none"));
  if (a->reduction != TIGON_REDUCTION_MEAN && tigon_present(a->denominator))
    return tigon_refuse(context, "options.denominator is there, must be absent but with options.reduction mean");
  return TIGON_OK;
}

/* softcap * tanh(x / softcap) / temperature is cap * tanh(x / temperature / cap) with a cap of softcap / temperature. */
static float softcap_of(const tigon_cross_entropy_options *o) {
  if (o->softcap == 0 || !o->softcap_first || o->temperature == 0) return (float)o->softcap;
  return (float)fmin(fmax(o->softcap / o->temperature, FLT_MIN), FLT_MAX);
}

tigon_status tigon_check_loss(tigon_context *context, const tigon_loss_args *a, tigon_cross_entropy_problem *p) {
  const tigon_cross_entropy_options *o = a->options;
  const tigon_cross_entropy_outputs *out = a->out;
  const tigon_reduced reduced = {o->reduction,     a->rows_of,     a->dloss, a->forward ? &out->loss : NULL,
                                 &out->token_loss, &o->denominator};
  TIGON_TRY(tigon_check_reduction(context, &reduced));
  const float grad_scale = a->grad_scale != 0 ? (float)a->grad_scale : 1;
  *p = (tigon_cross_entropy_problem){
      .cols = a->vocab,
      .label_dtype = a->labels->dtype,
      .labels = a->labels->data,
      .weight = o->weight.data,
      .token_scale = o->token_scale.data,
      .denominator = o->denominator.data,
      .dloss = a->dloss->data,
      .dentropy = a->dentropy->data,
      .token_loss = out->token_loss.data,
      .lse = out->lse.data,
      .z_loss = out->z_loss.data,
      .entropy = out->entropy.data,
      .argmax = out->argmax.data,
      .loss = out->loss.data,
      .correct = out->correct.data,
      .has_ignore_index = o->has_ignore_index != 0,
      .ignore_index = o->ignore_index,
      .label_smoothing = (float)o->label_smoothing,
      .lse_square_scale = (float)o->lse_square_scale,
      .softcap = softcap_of(o),
      .inverse_temperature = o->temperature != 0 ? (float)(1 / o->temperature) : 1,
      .grad_scale = grad_scale,
      .entropy_scale = tigon_present(a->dentropy) ? grad_scale : 0,
      .reduction = o->reduction,
  };
  return TIGON_OK;
}

tigon_status tigon_check_shard(tigon_context *context, tigon_dim of, int64_t begin, const char *name, int64_t vocab) {
  const int64_t classes = tigon_extent_of(of);
  if (classes > vocab)
    return tigon_refuse(context, "%s.shape[%d] is %" PRId64 ", must be at most %" PRId64 " (%s)", of.name, of.dim,
                        classes, vocab, name);
  if (begin > vocab - classes)
    return tigon_refuse(context, "vocab_begin is %" PRId64 ", must be 0 to %" PRId64 " (%s - %s.shape[%d])", begin,
                        vocab - classes, name, of.name, of.dim);
  return TIGON_OK;
}

tigon_status tigon_check_sequences(tigon_context *context, const tigon_tensor *segments, const tigon_tensor *padded,
                                   tigon_sequences *of) {
  if (padded && !tigon_present(segments)) {
    if (padded->ndim != 3) return tigon_refuse(context, "segments is absent, must be there unless hidden is [S, T, H]");
    of->count = padded->shape[0];
    of->length = padded->shape[1];
    of->count_name = "hidden.shape[0]";
    return TIGON_OK;
  }
  TIGON_TRY(tigon_check_ndim(context, "segments", segments, 1));
  if (segments->shape[0] < 1) return tigon_refuse(context, "segments.shape[0] is 0, must be >= 1");
  of->count = segments->shape[0] - 1;
  of->segments = tigon_vector_of(segments);
  of->count_name = "segments.shape[0] - 1";
  return TIGON_OK;
}

tigon_status tigon_check_segments(tigon_context *context, const tigon_sequences *of) {
  if (!context->queue.backend->host_memory || context->queue.record) return TIGON_OK;
  int64_t before = 0;
  for (int64_t s = 0; of->segments.data && s <= of->count; ++s) {
    const int64_t at = tigon_vector_index(of->segments, s);
    if (s == 0 && at != 0) return tigon_refuse(context, "segments[0] is %" PRId64 ", must be 0", at);
    if (s == of->count && at != of->tokens)
      return tigon_refuse(context, "segments[%" PRId64 "] is %" PRId64 ", must be %" PRId64 " (%s)", s, at, of->tokens,
                          of->tokens_name);
    if (at < before || at > of->tokens)
      return tigon_refuse(context, "segments[%" PRId64 "] is %" PRId64 ", must be %" PRId64 " to %" PRId64, s, at,
                          before, of->tokens);
    before = at;
  }
  return TIGON_OK;
}

tigon_status tigon_check_of_sequences(tigon_context *context, const char *name, const tigon_tensor *t, bool of_tokens,
                                      const tigon_sequences *of) {
  return of_tokens ? tigon_check_vector(context, name, t, of->tokens, of->tokens_name)
                   : tigon_check_vector(context, name, t, of->count, of->count_name);
}

void *tigon_cut(char *workspace, size_t *used, size_t bytes) {
  void *at = workspace ? workspace + *used : NULL;
  *used += lines(bytes);
  return at;
}

void tigon_cut_loss(tigon_cross_entropy_problem *p, const tigon_cross_entropy_outputs *out, bool forward,
                    char *workspace, size_t *used) {
  const size_t rows = (size_t)p->space.rows;
  p->inverse = tigon_cut(workspace, used, sizeof *p->inverse);
  if (!forward) return;
  if (!tigon_present(&out->token_loss)) p->token_loss = tigon_cut(workspace, used, rows * sizeof *p->token_loss);
  if (tigon_present(&out->correct) && !tigon_present(&out->argmax))
    p->argmax = tigon_cut(workspace, used, rows * sizeof *p->argmax);
}
