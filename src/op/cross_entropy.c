#include <string.h>

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
DESCRIBE(cross_entropy, fwd, fwd);
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
DESCRIBE(cross_entropy, bwd, bwd);
#undef A

/* loss and token_loss are there or not as the reduction asks. */
static tigon_status check_presence(tigon_context *context, const tigon_loss_args *a) {
  const bool none = a->options->reduction == TIGON_REDUCTION_NONE;
  if (none && tigon_present(&a->out->loss))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: out.loss is there, must be absent with options.reduction none",
                      a->call);
  if (none && !tigon_present(&a->out->token_loss))
    return tigon_fail(context, TIGON_ERROR_INVALID,
                      "%s: out.token_loss is absent, must be there with options.reduction none", a->call);
  if (!none && !tigon_present(&a->out->loss))
    return tigon_fail(context, TIGON_ERROR_INVALID,
                      "%s: out.loss is absent, must be there but with options.reduction none", a->call);
  return TIGON_OK;
}

static tigon_status check_dloss(tigon_context *context, const tigon_loss_args *a) {
  if (a->options->reduction == TIGON_REDUCTION_NONE)
    return tigon_check_per_row(context, a->call, "dloss", a->dloss, a->rows_name, a->rows_of);
  return tigon_check_vector(context, a->call, "dloss", a->dloss, 1, "unless options.reduction is none");
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

/* ---- the op ---- */

/* Cuts the workspace into `inverse` and what a forward call left out of token_loss and argmax; returns its bytes. */
static size_t cut_workspace(tigon_cross_entropy_problem *p, const tigon_cross_entropy_outputs *out, char *workspace,
                            bool forward) {
  const size_t rows = (size_t)p->space.rows, line = 64;
  size_t bytes = line;
  p->inverse = (float *)workspace;
  if (!forward) return bytes;
  if (!tigon_present(&out->token_loss)) {
    p->token_loss = workspace ? (float *)(workspace + bytes) : NULL;
    bytes += (rows * sizeof *p->token_loss + line - 1) / line * line;
  }
  if (tigon_present(&out->correct) && !tigon_present(&out->argmax)) {
    p->argmax = workspace ? (int64_t *)(workspace + bytes) : NULL;
    bytes += (rows * sizeof *p->argmax + line - 1) / line * line;
  }
  return bytes;
}

/* A call of either entry whose description holds: forward's arguments, backward's with lse and error in `out`. */
static tigon_status prepare(tigon_context *context, const char *call, const tigon_cross_entropy_fwd_args *a,
                            bool forward, bool shape_only, tigon_cross_entropy_problem *p, size_t *needed) {
  const tigon_loss_args loss = {.call = call,
                                .forward = forward,
                                .rows_name = "logits",
                                .rows_of = &a->logits,
                                .vocab = tigon_last_extent(&a->logits),
                                .labels = &a->labels,
                                .dloss = &a->dloss,
                                .options = &a->options,
                                .out = &a->out,
                                .grad_scale = a->grad_scale};
  TIGON_TRY(tigon_check_loss(context, &loss, p));
  p->parts = TIGON_CROSS_ENTROPY_COUNT | TIGON_CROSS_ENTROPY_ROWS | (forward ? TIGON_CROSS_ENTROPY_REDUCE : 0);
  p->dtype = a->logits.dtype;
  const tigon_tensor *const tensors[] = {&a->logits, &a->dlogits};
  tigon_rows *const rows[] = {&p->logits, &p->dlogits};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space));
  if (p->space.rows > INT64_MAX / 16)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: logits has more rows than a workspace can hold numbers for",
                      call);
  *needed = cut_workspace(p, &a->out, a->workspace, forward);
  if (shape_only) return TIGON_OK;
  TIGON_TRY(tigon_check_workspace(context, a->workspace, a->workspace_bytes, *needed));
  return tigon_check_indices(context, "labels", &a->labels, tigon_last_dim("logits", &a->logits), p->has_ignore_index,
                             p->ignore_index, &a->out.error, &p->error_flag);
}

static tigon_status prepare_fwd(tigon_context *context, const tigon_cross_entropy_fwd_args *args, bool shape_only,
                                tigon_cross_entropy_problem *p, size_t *needed) {
  const tigon_schema *schema = &tigon_cross_entropy_fwd_schema;
  tigon_cross_entropy_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, schema, args, &a, shape_only));
  return prepare(context, schema->name, &a, true, shape_only, p, needed);
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_cross_entropy_bwd_args *args, bool shape_only,
                                tigon_cross_entropy_problem *p, size_t *needed) {
  const tigon_schema *schema = &tigon_cross_entropy_bwd_schema;
  tigon_cross_entropy_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, schema, args, &a, shape_only));
  const tigon_cross_entropy_fwd_args as_forward = {
      .logits = a.logits,
      .labels = a.labels,
      .options = a.options,
      .out = {.lse = a.lse, .error = a.error},
      .dlogits = a.dlogits,
      .dloss = a.dloss,
      .grad_scale = a.grad_scale,
      .workspace = a.workspace,
      .workspace_bytes = a.workspace_bytes,
  };
  return prepare(context, schema->name, &as_forward, false, shape_only, p, needed);
}

tigon_status tigon_cross_entropy_fwd(tigon_context *context, const tigon_cross_entropy_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_cross_entropy_fwd_problem p;
  size_t needed = 0;
  TIGON_TRY(prepare_fwd(context, args, false, &p, &needed));
  return TIGON_CALL_SLOT(context, cross_entropy_fwd, p.dtype, &p);
}

tigon_status tigon_cross_entropy_fwd_workspace(tigon_context *context, const tigon_cross_entropy_fwd_args *args,
                                               size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_cross_entropy_fwd_problem p;
  TIGON_TRY(tigon_check_query(context, &tigon_cross_entropy_fwd_schema, bytes));
  return prepare_fwd(context, args, true, &p, bytes);
}

tigon_status tigon_cross_entropy_bwd(tigon_context *context, const tigon_cross_entropy_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_cross_entropy_bwd_problem p;
  size_t needed = 0;
  TIGON_TRY(prepare_bwd(context, args, false, &p, &needed));
  if (p.space.rows == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, cross_entropy_bwd, p.dtype, &p);
}

tigon_status tigon_cross_entropy_bwd_workspace(tigon_context *context, const tigon_cross_entropy_bwd_args *args,
                                               size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_cross_entropy_bwd_problem p;
  TIGON_TRY(tigon_check_query(context, &tigon_cross_entropy_bwd_schema, bytes));
  return prepare_bwd(context, args, true, &p, bytes);
}
