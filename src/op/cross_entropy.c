#include "op/loss.h"

#define A tigon_cross_entropy_fwd_args
static const tigon_field fwd[] = {
    IN(logits, "*v", SAME, ROWS),
    IN(labels, "@", INDEX('v'), DENSE),
    WANT(dlogits, "*v", SAME, ROWS, "logits"),
    MAY(dloss, "?1", F32, DENSE),
    LOSS_TENSORS,
    LOSS_OUTPUTS,
    LOSS_NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};
#undef A

#define A tigon_cross_entropy_bwd_args
static const tigon_field bwd[] = {
    IN(logits, "*v", SAME, ROWS),
    IN(labels, "@", INDEX('v'), DENSE),
    OUT(dlogits, "*v", SAME, ROWS, "logits"),
    MAY(dloss, "?1", F32, DENSE),
    LOSS_TENSORS,
    IN(lse, "@", F32, DENSE),
    WANT(error, "1 a scalar", I32, DENSE, NULL),
    LOSS_NUMBERS,
    WORKSPACE,
    RESERVED(reserved),
};

/* loss and token_loss are there or not as the reduction asks. */
static tigon_status check_presence(tigon_context *context, const tigon_loss_args *a) {
  const bool none = a->options->reduction == TIGON_REDUCTION_NONE, has_loss = tigon_present(&a->out->loss);
  if (none && has_loss) return tigon_refuse(context, "out.loss is there, must be absent with options.reduction none");
  if (none && !tigon_present(&a->out->token_loss))
    return tigon_refuse(context, "out.token_loss is absent, must be there with options.reduction none");
  if (!none && !has_loss)
    return tigon_refuse(context, "out.loss is absent, must be there but with options.reduction none");
  return TIGON_OK;
}

static tigon_status check_dloss(tigon_context *context, const tigon_loss_args *a) {
  if (a->options->reduction == TIGON_REDUCTION_NONE)
    return tigon_check_per_row(context, "dloss", a->dloss, a->rows_name, a->rows_of);
  return tigon_check_vector(context, "dloss", a->dloss, 1, "unless options.reduction is none");
}

tigon_status tigon_check_loss(tigon_context *context, const tigon_loss_args *a, tigon_cross_entropy_problem *p) {
  const tigon_cross_entropy_options *o = a->options;
  const tigon_cross_entropy_outputs *out = a->out;
  if (a->forward) TIGON_TRY(check_presence(context, a));
  TIGON_TRY(check_dloss(context, a));
  *p = (tigon_cross_entropy_problem){
      .cols = a->vocab,
      .label_dtype = a->labels->dtype,
      .labels = a->labels->data,
      .weight = o->weight.data,
      .token_scale = o->token_scale.data,
      .dloss = a->dloss->data,
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
      .softcap = (float)o->softcap,
      .inverse_temperature = o->temperature != 0 ? (float)(1 / o->temperature) : 1,
      .grad_scale = a->grad_scale != 0 ? (float)a->grad_scale : 1,
      .reduction = o->reduction,
  };
  return TIGON_OK;
}

void *tigon_cut(char *workspace, size_t *used, size_t bytes) {
  enum { LINE = 64 };
  void *at = workspace ? workspace + *used : NULL;
  *used += (bytes + LINE - 1) / LINE * LINE;
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

/* ---- the op ---- */

/* A call of either entry. */
static tigon_status prepare(tigon_context *context, const tigon_loss_args *loss, const tigon_tensor *dlogits,
                            void *workspace, tigon_cross_entropy_problem *p, size_t *bytes) {
  const tigon_tensor *logits = loss->rows_of;
  TIGON_TRY(tigon_check_loss(context, loss, p));
  p->parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_ROWS | (loss->forward ? TIGON_CROSS_ENTROPY_REDUCE : 0);
  p->dtype = logits->dtype;
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {logits, &p->logits}, {dlogits, &p->dlogits}));
  if (p->space.rows > INT64_MAX / 16)
    return tigon_refuse(context, "logits has more rows than a workspace can hold numbers for");
  tigon_cut_loss(p, loss->out, loss->forward, workspace, bytes);
  return tigon_check_indices(context, "labels", loss->labels, tigon_last_dim("logits", logits), p->has_ignore_index,
                             p->ignore_index, &loss->out->error, &p->error_flag);
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_cross_entropy_fwd_args *a,
                                tigon_cross_entropy_problem *p, size_t *bytes) {
  const tigon_loss_args loss = {LOSS_ARGS(logits), .forward = true, .vocab = tigon_last_extent(&a->logits),
                                .out = &a->out};
  return prepare(context, &loss, &a->dlogits, a->workspace, p, bytes);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_cross_entropy_bwd_args *a,
                                tigon_cross_entropy_problem *p, size_t *bytes) {
  const tigon_cross_entropy_outputs out = {.lse = a->lse, .error = a->error};
  const tigon_loss_args loss = {LOSS_ARGS(logits), .vocab = tigon_last_extent(&a->logits), .out = &out};
  return prepare(context, &loss, &a->dlogits, a->workspace, p, bytes);
}

/* Without rows loss and correct are written still. */
TIGON_ENTRY_WITH_WORKSPACE(cross_entropy, fwd, fwd, prepare_fwd, false)
TIGON_ENTRY_WITH_WORKSPACE(cross_entropy, bwd, bwd, prepare_bwd, p.space.rows == 0)
