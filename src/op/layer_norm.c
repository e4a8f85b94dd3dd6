#include <tigon/op/layer_norm.h>

#include "op/front.h"

tigon_status tigon_layer_norm_fwd(tigon_context *context, const tigon_layer_norm_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "layer_norm_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_layer_norm_fwd_args a = *args;
  tigon_arg list[] = {
      {"x", &a.x, TIGON_FLOATS, TIGON_IN, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"b", &a.b, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"y", &a.y, TIGON_FLOATS, TIGON_OUT, "x"},
      {"mean", &a.mean, TIGON_BIT(TIGON_F32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"rstd", &a.rstd, TIGON_BIT(TIGON_F32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  TIGON_TRY(tigon_check_same_shape(context, call, "y", &a.y, "x", &a.x));
  TIGON_TRY(tigon_check_same_dtype(context, call, "y", &a.y, "x", &a.x, TIGON_DTYPE_NONE));
  const tigon_norm_args norm = {
      .call = call, .x_name = "x", .x = &a.x, .w = &a.w, .b = &a.b, .mean = &a.mean, .rstd = &a.rstd, .eps = a.eps};
  TIGON_TRY(tigon_check_norm(context, &norm));

  tigon_layer_norm_fwd_problem p = {
      .cols = tigon_last_extent(&a.x),
      .dtype = a.x.dtype,
      .w_dtype = a.w.dtype,
      .b_dtype = a.b.dtype,
      .w = a.w.data,
      .b = a.b.data,
      .mean = a.mean.data,
      .rstd = a.rstd.data,
      .eps = (float)a.eps,
      .casting = TIGON_CASTING_GEMMA,
  };
  const tigon_tensor *const tensors[] = {&a.x, &a.y};
  tigon_rows *const rows[] = {&p.x, &p.y};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, layer_norm_fwd, p.dtype, &p);
}

/* Checks and collapses the call; `shape_only` for the workspace query. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_layer_norm_bwd_args *args, bool shape_only,
                                tigon_layer_norm_bwd_problem *p) {
  const char *call = "layer_norm_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_layer_norm_bwd_args a = *args;
  tigon_arg list[] = {
      {"dy", &a.dy, TIGON_FLOATS, TIGON_IN, NULL},
      {"x", &a.x, TIGON_FLOATS, TIGON_IN, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"mean", &a.mean, TIGON_BIT(TIGON_F32), TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"rstd", &a.rstd, TIGON_BIT(TIGON_F32), TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"dx", &a.dx, TIGON_FLOATS, TIGON_OUT, "dy x"},
      {"dw", &a.dw, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"db", &a.db, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), shape_only));
  TIGON_TRY(tigon_check_same_shape(context, call, "dy", &a.dy, "x", &a.x));
  TIGON_TRY(tigon_check_same_shape(context, call, "dx", &a.dx, "x", &a.x));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dy", &a.dy, "x", &a.x, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dx", &a.dx, "x", &a.x, TIGON_DTYPE_NONE));
  const tigon_norm_args norm = {.call = call,
                                .x_name = "x",
                                .x = &a.x,
                                .w = &a.w,
                                .mean = &a.mean,
                                .rstd = &a.rstd,
                                .dw = &a.dw,
                                .db = &a.db,
                                .accumulate_dw = a.accumulate_dw};
  TIGON_TRY(tigon_check_norm(context, &norm));

  *p = (tigon_layer_norm_bwd_problem){
      .cols = tigon_last_extent(&a.x),
      .dtype = a.x.dtype,
      .w_dtype = a.w.dtype,
      .dw_dtype = a.dw.dtype,
      .db_dtype = a.db.dtype,
      .w = a.w.data,
      .mean = a.mean.data,
      .rstd = a.rstd.data,
      .dw = a.dw.data,
      .db = a.db.data,
      .slabs = a.workspace,
      .casting = TIGON_CASTING_GEMMA,
      .accumulate_dw = a.accumulate_dw != 0,
  };
  const tigon_tensor *const tensors[] = {&a.dy, &a.x, &a.dx};
  tigon_rows *const rows[] = {&p->dy, &p->x, &p->dx};
  return tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space);
}

/* A call without dw and db needs no slabs. */
static tigon_status bwd_workspace(tigon_context *context, const tigon_layer_norm_bwd_args *args,
                                  const tigon_layer_norm_bwd_problem *p, size_t *bytes) {
  *bytes = 0;
  return tigon_present(&args->dw) || tigon_present(&args->db)
             ? TIGON_ASK_WORKSPACE(context, layer_norm_bwd, p->dtype, p, bytes)
             : TIGON_OK;
}

tigon_status tigon_layer_norm_bwd(tigon_context *context, const tigon_layer_norm_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_layer_norm_bwd_problem p;
  size_t bytes;
  TIGON_TRY(prepare_bwd(context, args, false, &p));
  TIGON_TRY(bwd_workspace(context, args, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, "layer_norm_bwd", args->workspace, args->workspace_bytes, bytes));
  if (p.cols == 0 || (p.space.rows == 0 && !p.dw && !p.db)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, layer_norm_bwd, p.dtype, &p);
}

tigon_status tigon_layer_norm_bwd_workspace(tigon_context *context, const tigon_layer_norm_bwd_args *args,
                                            size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_layer_norm_bwd_problem p;
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "layer_norm_bwd_workspace: bytes is NULL");
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return bwd_workspace(context, args, &p, bytes);
}
