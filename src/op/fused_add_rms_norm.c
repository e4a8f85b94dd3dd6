#include <tigon/op/fused_add_rms_norm.h>

#include "op/front.h"

tigon_status tigon_fused_add_rms_norm_fwd(tigon_context *context, const tigon_fused_add_rms_norm_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "fused_add_rms_norm_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_fused_add_rms_norm_fwd_args a = *args;
  tigon_arg list[] = {
      {"x", &a.x, TIGON_FLOATS, TIGON_IN, NULL},
      {"residual", &a.residual, TIGON_FLOATS, TIGON_IN, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"s", &a.s, TIGON_FLOATS, TIGON_OUT, "x residual"},
      {"y", &a.y, TIGON_FLOATS, TIGON_OUT, "x residual"},
      {"rstd", &a.rstd, TIGON_BIT(TIGON_F32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  for (int i = 1; i < TIGON_COUNT(list); ++i) {
    if (i == 2 || i == 5) continue; /* w, rstd */
    TIGON_TRY(tigon_check_same_shape(context, call, list[i].name, list[i].tensor, "x", &a.x));
    TIGON_TRY(tigon_check_same_dtype(context, call, list[i].name, list[i].tensor, "x", &a.x, TIGON_DTYPE_NONE));
  }
  const tigon_norm_args norm = {.call = call,
                                .x_name = "x",
                                .x = &a.x,
                                .w = &a.w,
                                .rstd = &a.rstd,
                                .eps = a.eps,
                                .w_offset = a.w_offset,
                                .casting = a.casting};
  TIGON_TRY(tigon_check_norm(context, &norm));

  tigon_fused_add_rms_norm_fwd_problem p = {
      .cols = tigon_last_extent(&a.x),
      .dtype = a.x.dtype,
      .w_dtype = a.w.dtype,
      .w = a.w.data,
      .rstd = a.rstd.data,
      .eps = (float)a.eps,
      .w_offset = (float)a.w_offset,
      .casting = a.casting,
  };
  const tigon_tensor *const tensors[] = {&a.x, &a.residual, &a.s, &a.y};
  tigon_rows *const rows[] = {&p.x, &p.residual, &p.s, &p.y};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, fused_add_rms_norm_fwd, p.dtype, &p);
}

/* Checks and collapses the call; `shape_only` for the workspace query. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_fused_add_rms_norm_bwd_args *args, bool shape_only,
                                tigon_fused_add_rms_norm_bwd_problem *p) {
  const char *call = "fused_add_rms_norm_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_fused_add_rms_norm_bwd_args a = *args;
  tigon_arg list[] = {
      {"dy", &a.dy, TIGON_FLOATS, TIGON_IN, NULL},
      {"ds", &a.ds, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL, NULL},
      {"s", &a.s, TIGON_FLOATS, TIGON_IN, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"rstd", &a.rstd, TIGON_BIT(TIGON_F32), TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"dx", &a.dx, TIGON_FLOATS, TIGON_OUT, "dy ds s"},
      {"dw", &a.dw, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), shape_only));
  const int wide[] = {0, 1, 5}; /* dy, ds, dx */
  for (int i = 0; i < TIGON_COUNT(wide); ++i) {
    const tigon_arg *arg = &list[wide[i]];
    TIGON_TRY(tigon_check_same_shape(context, call, arg->name, arg->tensor, "s", &a.s));
    TIGON_TRY(tigon_check_same_dtype(context, call, arg->name, arg->tensor, "s", &a.s, TIGON_DTYPE_NONE));
  }
  const tigon_norm_args norm = {.call = call,
                                .x_name = "s",
                                .x = &a.s,
                                .w = &a.w,
                                .rstd = &a.rstd,
                                .dw = &a.dw,
                                .w_offset = a.w_offset,
                                .casting = a.casting,
                                .accumulate_dw = a.accumulate_dw};
  TIGON_TRY(tigon_check_norm(context, &norm));

  *p = (tigon_fused_add_rms_norm_bwd_problem){
      .cols = tigon_last_extent(&a.s),
      .dtype = a.s.dtype,
      .w_dtype = a.w.dtype,
      .dw_dtype = a.dw.dtype,
      .w = a.w.data,
      .rstd = a.rstd.data,
      .dw = a.dw.data,
      .slabs = a.workspace,
      .w_offset = (float)a.w_offset,
      .casting = a.casting,
      .accumulate_dw = a.accumulate_dw != 0,
  };
  const tigon_tensor *const tensors[] = {&a.dy, &a.ds, &a.s, &a.dx};
  tigon_rows *const rows[] = {&p->dy, &p->ds, &p->x, &p->dx};
  return tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space);
}

/* A call without dw needs no slabs. */
static tigon_status bwd_workspace(tigon_context *context, const tigon_fused_add_rms_norm_bwd_args *args,
                                  const tigon_fused_add_rms_norm_bwd_problem *p, size_t *bytes) {
  *bytes = 0;
  return tigon_present(&args->dw) ? TIGON_ASK_WORKSPACE(context, fused_add_rms_norm_bwd, p->dtype, p, bytes) : TIGON_OK;
}

tigon_status tigon_fused_add_rms_norm_bwd(tigon_context *context, const tigon_fused_add_rms_norm_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_fused_add_rms_norm_bwd_problem p;
  size_t bytes;
  TIGON_TRY(prepare_bwd(context, args, false, &p));
  TIGON_TRY(bwd_workspace(context, args, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, "fused_add_rms_norm_bwd", args->workspace, args->workspace_bytes, bytes));
  if (p.cols == 0 || (p.space.rows == 0 && !p.dw)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, fused_add_rms_norm_bwd, p.dtype, &p);
}

tigon_status tigon_fused_add_rms_norm_bwd_workspace(tigon_context *context,
                                                    const tigon_fused_add_rms_norm_bwd_args *args, size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_fused_add_rms_norm_bwd_problem p;
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "fused_add_rms_norm_bwd_workspace: bytes is NULL");
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return bwd_workspace(context, args, &p, bytes);
}
