#include <tigon/op/adamw.h>

#include "op/front.h"

/* The tensors of params[i], as the check sees them. */
static tigon_status check_param(tigon_context *context, int64_t i, const tigon_adamw_param *param, tigon_tensor *clip_factor) {
  const char *call = "adamw_step";
  char names[5][48];
  static const char *const fields[] = {"param", "master", "grad", "exp_avg", "exp_avg_sq"};
  for (int f = 0; f < 5; ++f) snprintf(names[f], sizeof names[f], "params[%lld].%s", (long long)i, fields[f]);
  tigon_adamw_param a = *param;
  const uint32_t f32 = TIGON_BIT(TIGON_F32);
  tigon_arg list[] = {
      {names[0], &a.param, TIGON_FLOATS, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
      {names[1], &a.master, f32, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {names[2], &a.grad, TIGON_FLOATS, TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {names[3], &a.exp_avg, f32, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
      {names[4], &a.exp_avg_sq, f32, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
      {"clip_factor", clip_factor, f32, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  for (int f = 1; f < 5; ++f) TIGON_TRY(tigon_check_same_shape(context, call, names[f], list[f].tensor, names[0], &a.param));
  TIGON_TRY(tigon_check_same_dtype(context, call, names[2], &a.grad, names[0], &a.param, TIGON_F32));
  snprintf(names[1], sizeof names[1], "params[%lld].weight_decay", (long long)i);
  return tigon_check_number(context, call, names[1], a.weight_decay, 0, FLT_MAX);
}

tigon_status tigon_adamw_step(tigon_context *context, const tigon_adamw_step_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "adamw_step";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_adamw_step_args a = *args;
  if (a.count < 0) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: count is %lld, must be >= 0", call, (long long)a.count);
  if (a.count && !a.params) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: params is NULL", call);
  TIGON_TRY(tigon_check_number(context, call, "lr", a.lr, 0, FLT_MAX));
  TIGON_TRY(tigon_check_number(context, call, "beta1", a.beta1, 0, 1 - DBL_EPSILON));
  TIGON_TRY(tigon_check_number(context, call, "beta2", a.beta2, 0, 1 - DBL_EPSILON));
  TIGON_TRY(tigon_check_number(context, call, "eps", a.eps, FLT_MIN, FLT_MAX));
  if (a.step < 1) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: step is %lld, must be >= 1", call, (long long)a.step);
  uint32_t dtypes = 0;
  TIGON_TRY(tigon_check_vector(context, call, "clip_factor", &a.clip_factor, 1, "one number"));
  for (int64_t i = 0; i < a.count; ++i) {
    TIGON_TRY(check_param(context, i, &a.params[i], &a.clip_factor));
    dtypes |= TIGON_BIT(a.params[i].param.dtype);
  }
  const tigon_adamw_step_problem p = {
      .params = a.params,
      .count = a.count,
      .clip_factor = a.clip_factor.data,
      .lr = (float)a.lr,
      .beta1 = (float)a.beta1,
      .beta2 = (float)a.beta2,
      .eps = (float)a.eps,
      .correction1 = 1 - pow(a.beta1, (double)a.step),
      .correction2 = 1 - pow(a.beta2, (double)a.step),
  };
  for (tigon_dtype d = TIGON_F32; d <= TIGON_BF16; ++d)
    if ((dtypes & TIGON_BIT(d)) && !(context->kernels->adamw_step.dtypes & TIGON_BIT(d)))
      return tigon_front_unsupported(context, "adamw_step", d);
  static const tigon_plan no_plan;
  return TIGON_CALL_SLOT(context, adamw_step, TIGON_F32, &p, &no_plan);
}

static const size_t clip_bytes = TIGON_ADAMW_PARTIALS * sizeof(double);

tigon_status tigon_adamw_clip(tigon_context *context, const tigon_adamw_clip_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "adamw_clip";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_adamw_clip_args a = *args;
  if (a.count < 0) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: count is %lld, must be >= 0", call, (long long)a.count);
  if (a.count && !a.grads) return tigon_fail(context, TIGON_ERROR_INVALID, "%s: grads is NULL", call);
  TIGON_TRY(tigon_check_number(context, call, "max_norm", a.max_norm, 0, FLT_MAX));
  const uint32_t f32 = TIGON_BIT(TIGON_F32);
  tigon_tensor nothing = {0};
  for (int64_t i = -1; i < a.count; ++i) {
    char name[32];
    snprintf(name, sizeof name, "grads[%lld]", (long long)i);
    tigon_tensor grad = i < 0 ? nothing : a.grads[i];
    tigon_arg list[] = {
        {"norm", &a.norm, f32, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
        {"factor", &a.factor, f32, TIGON_OUT | TIGON_CONTIGUOUS, NULL},
        {name, &grad, TIGON_FLOATS, TIGON_IN | TIGON_CONTIGUOUS | (i < 0 ? TIGON_OPTIONAL : 0), NULL},
    };
    TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  }
  TIGON_TRY(tigon_check_vector(context, call, "norm", &a.norm, 1, "one number"));
  TIGON_TRY(tigon_check_vector(context, call, "factor", &a.factor, 1, "one number"));
  TIGON_TRY(tigon_check_workspace(context, call, a.workspace, a.workspace_bytes, clip_bytes));
  const tigon_adamw_clip_problem p = {
      .grads = a.grads,
      .count = a.count,
      .max_norm = (float)a.max_norm,
      .norm = a.norm.data,
      .factor = a.factor.data,
      .partials = a.workspace,
  };
  static const tigon_plan no_plan;
  return TIGON_CALL_SLOT(context, adamw_clip, TIGON_F32, &p, &no_plan);
}

tigon_status tigon_adamw_clip_workspace(tigon_context *context, const tigon_adamw_clip_args *args, size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  TIGON_TRY(tigon_check_call(context, "adamw_clip_workspace", args, args ? args->reserved : NULL, 4));
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "adamw_clip_workspace: bytes is NULL");
  *bytes = clip_bytes;
  return TIGON_OK;
}
