#include <tigon/op/cross_entropy.h>

#include <inttypes.h>
#include <string.h>

#include "op/front.h"

/* ---- what fused_linear_cross_entropy checks alike ---- */

int tigon_loss_list(tigon_cross_entropy_options *options, tigon_cross_entropy_outputs *out, tigon_arg *to) {
  const uint32_t f32 = TIGON_BIT(TIGON_F32), i64 = TIGON_BIT(TIGON_I64), i32 = TIGON_BIT(TIGON_I32);
  const int in = TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, written = TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS;
  const tigon_arg list[] = {
      {"options.weight", &options->weight, f32, in, NULL},
      {"options.token_scale", &options->token_scale, f32, in, NULL},
      {"out.loss", &out->loss, f32, written, NULL},
      {"out.token_loss", &out->token_loss, f32, written, NULL},
      {"out.lse", &out->lse, f32, written, NULL},
      {"out.z_loss", &out->z_loss, f32, written, NULL},
      {"out.entropy", &out->entropy, f32, written, NULL},
      {"out.argmax", &out->argmax, i64, written, NULL},
      {"out.correct", &out->correct, i64, written, NULL},
      {"out.error", &out->error, i32, written, NULL},
  };
  for (int i = 0; i < TIGON_COUNT(list); ++i) to[i] = list[i];
  return TIGON_COUNT(list);
}

static tigon_status check_numbers(tigon_context *context, const tigon_loss_args *a) {
  const char *call = a->call;
  const tigon_cross_entropy_options *o = a->options;
  for (int i = 0; i < 4; ++i)
    if (o->reserved[i])
      return tigon_fail(context, TIGON_ERROR_INVALID, "%s: options.reserved[%d] is %" PRIu64 ", must be 0", call, i,
                        o->reserved[i]);
  TIGON_TRY(tigon_check_flag(context, call, "options.has_ignore_index", o->has_ignore_index));
  TIGON_TRY(tigon_check_number(context, call, "options.label_smoothing", o->label_smoothing, 0, 1));
  TIGON_TRY(tigon_check_number(context, call, "options.lse_square_scale", o->lse_square_scale, 0, FLT_MAX));
  if (o->softcap != 0) TIGON_TRY(tigon_check_number(context, call, "options.softcap", o->softcap, FLT_MIN, FLT_MAX));
  if (o->temperature != 0)
    TIGON_TRY(tigon_check_number(context, call, "options.temperature", o->temperature, FLT_MIN, FLT_MAX));
  TIGON_TRY(tigon_check_choice(context, call, "options.reduction", (int)o->reduction, TIGON_REDUCTION_NONE));
  return tigon_check_number(context, call, "grad_scale", a->grad_scale, -FLT_MAX, FLT_MAX);
}

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

static tigon_status check_shapes(tigon_context *context, const tigon_loss_args *a) {
  const char *call = a->call;
  const tigon_cross_entropy_options *o = a->options;
  const tigon_cross_entropy_outputs *out = a->out;
  TIGON_TRY(tigon_check_per_row(context, call, "labels", a->labels, a->rows_name, a->rows_of));
  TIGON_TRY(tigon_check_same_vector(context, call, "options.weight", &o->weight, a->vocab));
  TIGON_TRY(tigon_check_per_row(context, call, "options.token_scale", &o->token_scale, a->rows_name, a->rows_of));
  if (o->reduction == TIGON_REDUCTION_NONE)
    TIGON_TRY(tigon_check_per_row(context, call, "dloss", a->dloss, a->rows_name, a->rows_of));
  else
    TIGON_TRY(tigon_check_vector(context, call, "dloss", a->dloss, 1, "unless options.reduction is none"));
  const char *names[] = {"out.token_loss", "out.lse", "out.z_loss", "out.entropy", "out.argmax"};
  const tigon_tensor *each[] = {&out->token_loss, &out->lse, &out->z_loss, &out->entropy, &out->argmax};
  for (int i = 0; i < TIGON_COUNT(each); ++i)
    TIGON_TRY(tigon_check_per_row(context, call, names[i], each[i], a->rows_name, a->rows_of));
  TIGON_TRY(tigon_check_vector(context, call, "out.loss", &out->loss, 1, "a scalar"));
  TIGON_TRY(tigon_check_vector(context, call, "out.correct", &out->correct, 1, "a scalar"));
  return tigon_check_vector(context, call, "out.error", &out->error, 1, "a scalar");
}

tigon_status tigon_check_loss(tigon_context *context, const tigon_loss_args *a, tigon_cross_entropy_problem *p) {
  const tigon_cross_entropy_options *o = a->options;
  const tigon_cross_entropy_outputs *out = a->out;
  TIGON_TRY(check_numbers(context, a));
  if (a->forward) TIGON_TRY(check_presence(context, a));
  TIGON_TRY(check_shapes(context, a));
  *p = (tigon_cross_entropy_problem){
      .cols = tigon_extent_of(a->vocab),
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
static size_t cut_workspace(tigon_cross_entropy_problem *p, char *workspace, bool forward, bool correct) {
  const size_t rows = (size_t)p->space.rows, line = 64;
  size_t bytes = line;
  p->inverse = (float *)workspace;
  if (!forward) return bytes;
  if (!p->token_loss) {
    p->token_loss = workspace ? (float *)(workspace + bytes) : NULL;
    bytes += (rows * sizeof *p->token_loss + line - 1) / line * line;
  }
  if (correct && !p->argmax) {
    p->argmax = workspace ? (int64_t *)(workspace + bytes) : NULL;
    bytes += (rows * sizeof *p->argmax + line - 1) / line * line;
  }
  return bytes;
}

/* Forward's arguments, strides to be filled in; backward's are put into the same struct, with lse as an input. */
static tigon_status prepare(tigon_context *context, const char *call, tigon_cross_entropy_fwd_args *a, bool forward,
                            bool shape_only, tigon_cross_entropy_problem *p, size_t *needed) {
  const int optional = TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS;
  tigon_arg list[TIGON_MAX_ARGS] = {
      {"logits", &a->logits, TIGON_FLOATS, TIGON_IN, NULL},
      {"labels", &a->labels, TIGON_INTS, TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"dlogits", &a->dlogits, TIGON_FLOATS, forward ? TIGON_OUT | TIGON_OPTIONAL : TIGON_OUT, "logits"},
      {"dloss", &a->dloss, TIGON_BIT(TIGON_F32), optional, NULL},
  };
  const int count = 4 + tigon_loss_list(&a->options, &a->out, list + 4);
  if (!forward)
    for (int i = 4; i < count; ++i) {
      if (list[i].tensor == &a->out.lse) list[i].name = "lse", list[i].flags = TIGON_IN | TIGON_CONTIGUOUS;
      if (list[i].tensor == &a->out.error) list[i].name = "error";
    }
  TIGON_TRY(tigon_check_args(context, call, list, count, shape_only));
  TIGON_TRY(tigon_check_same_shape(context, call, "dlogits", &a->dlogits, "logits", &a->logits));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dlogits", &a->dlogits, "logits", &a->logits, TIGON_DTYPE_NONE));
  if (!forward) { /* which are not in `out` there */
    TIGON_TRY(tigon_check_per_row(context, call, "lse", &a->out.lse, "logits", &a->logits));
    TIGON_TRY(tigon_check_vector(context, call, "error", &a->out.error, 1, "a scalar"));
  }
  const tigon_loss_args loss = {.call = call,
                                .forward = forward,
                                .rows_name = "logits",
                                .rows_of = &a->logits,
                                .vocab = tigon_last_dim("logits", &a->logits),
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
  *needed = cut_workspace(p, a->workspace, forward, tigon_present(&a->out.correct));
  if (shape_only) return TIGON_OK;
  TIGON_TRY(tigon_check_workspace(context, call, a->workspace, a->workspace_bytes, *needed));
  return tigon_check_indices(context, call, "labels", &a->labels, loss.vocab, p->has_ignore_index, p->ignore_index,
                             &a->out.error, &p->error_flag);
}

tigon_status tigon_cross_entropy_fwd(tigon_context *context, const tigon_cross_entropy_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "cross_entropy_fwd";
  tigon_cross_entropy_fwd_problem p;
  size_t needed;
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_cross_entropy_fwd_args a = *args;
  TIGON_TRY(prepare(context, call, &a, true, false, &p, &needed));
  return TIGON_CALL_SLOT(context, cross_entropy_fwd, p.dtype, &p);
}

tigon_status tigon_cross_entropy_fwd_workspace(tigon_context *context, const tigon_cross_entropy_fwd_args *args,
                                               size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "cross_entropy_fwd_workspace";
  tigon_cross_entropy_fwd_problem p;
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: bytes is NULL", call);
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_cross_entropy_fwd_args a = *args;
  return prepare(context, call, &a, true, true, &p, bytes);
}

static tigon_cross_entropy_fwd_args as_forward(const tigon_cross_entropy_bwd_args *a) {
  return (tigon_cross_entropy_fwd_args){
      .logits = a->logits,
      .labels = a->labels,
      .options = a->options,
      .out = {.lse = a->lse, .error = a->error},
      .dlogits = a->dlogits,
      .dloss = a->dloss,
      .grad_scale = a->grad_scale,
      .workspace = a->workspace,
      .workspace_bytes = a->workspace_bytes,
  };
}

tigon_status tigon_cross_entropy_bwd(tigon_context *context, const tigon_cross_entropy_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "cross_entropy_bwd";
  tigon_cross_entropy_bwd_problem p;
  size_t needed;
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_cross_entropy_fwd_args a = as_forward(args);
  TIGON_TRY(prepare(context, call, &a, false, false, &p, &needed));
  if (p.space.rows == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, cross_entropy_bwd, p.dtype, &p);
}

tigon_status tigon_cross_entropy_bwd_workspace(tigon_context *context, const tigon_cross_entropy_bwd_args *args,
                                               size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "cross_entropy_bwd_workspace";
  tigon_cross_entropy_bwd_problem p;
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: bytes is NULL", call);
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_cross_entropy_fwd_args a = as_forward(args);
  return prepare(context, call, &a, false, true, &p, bytes);
}
