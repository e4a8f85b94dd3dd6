#include <tigon/op/linear.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_linear_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*k", SAME, ROWS),
    IN(w, "nk", SAME, ROWS),
    MAY(b, "n", SAME_OR_F32, DENSE),
    OUT(y, "*n", SAME_OR_F32, ROWS, NULL),
    RESERVED(reserved),
};
DESCRIBE(linear, fwd, fwd);
#undef A

#define A tigon_linear_bwd_args
static const tigon_field bwd[] = {
    IN(dy, "*n", SAME_OR_F32, ROWS),
    MAY(w, "nk", SAME, ROWS),
    MAY(x, "*k", SAME, ROWS),
    WANT(dx, "*k", SAME, ROWS, NULL),
    WANT(dw, "nk", SAME_OR_F32, ROWS, NULL),
    WANT(db, "n", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(linear, bwd, bwd);
#undef A

tigon_status tigon_linear_fwd(tigon_context *context, const tigon_linear_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "linear_fwd";
  tigon_linear_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_linear_fwd_schema, args, &a, false));
  tigon_linear_fwd_problem p = {
      .n = a.w.shape[0],
      .k = a.w.shape[1],
      .dtype = a.x.dtype,
      .b_dtype = a.b.dtype,
      .y_dtype = a.y.dtype,
      .x = a.x.data,
      .w = a.w.data,
      .b = a.b.data,
      .y = a.y.data,
      .w_pitch = a.w.strides[0],
  };
  tigon_rows x, y;
  const tigon_tensor *const tensors[] = {&a.x, &a.y};
  tigon_rows *const rows[] = {&x, &y};
  TIGON_TRY(tigon_collapse_pitch(context, call, TIGON_COUNT(tensors), tensors, rows, &p.rows));
  p.x_pitch = x.pitch[2];
  p.y_pitch = y.pitch[2];
  if (p.rows == 0 || p.n == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, linear_fwd, p.dtype, &p);
}

/* Checks and collapses the call; `shape_only` for the workspace query. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_linear_bwd_args *args, bool shape_only,
                                tigon_linear_bwd_problem *p) {
  const char *call = "linear_bwd";
  tigon_linear_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_linear_bwd_schema, args, &a, shape_only));
  if (tigon_present(&a.dx) && !tigon_present(&a.w))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: w is absent, must be there for dx", call);
  if (tigon_present(&a.dw) && !tigon_present(&a.x))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: x is absent, must be there for dw", call);
  *p = (tigon_linear_bwd_problem){
      .n = tigon_last_extent(&a.dy),
      .k = tigon_present(&a.w)   ? a.w.shape[1]
           : tigon_present(&a.x) ? tigon_last_extent(&a.x)
                                 : 0,
      .dtype = tigon_present(&a.w)   ? a.w.dtype
               : tigon_present(&a.x) ? a.x.dtype
                                     : a.dy.dtype,
      .dy_dtype = a.dy.dtype,
      .dw_dtype = a.dw.dtype,
      .db_dtype = a.db.dtype,
      .dy = a.dy.data,
      .x = a.x.data,
      .w = a.w.data,
      .dx = a.dx.data,
      .dw = a.dw.data,
      .db = a.db.data,
      .w_pitch = a.w.strides[0],
      .dw_pitch = a.dw.strides[0],
      .workspace = a.workspace,
      .workspace_bytes = a.workspace_bytes,
      .accumulate = a.accumulate_dw != 0,
  };
  tigon_rows dy, x, dx;
  const tigon_tensor *const tensors[] = {&a.dy, &a.x, &a.dx};
  tigon_rows *const rows[] = {&dy, &x, &dx};
  TIGON_TRY(tigon_collapse_pitch(context, call, TIGON_COUNT(tensors), tensors, rows, &p->rows));
  p->dy_pitch = dy.pitch[2];
  p->x_pitch = x.pitch[2];
  p->dx_pitch = dx.pitch[2];
  return TIGON_OK;
}

tigon_status tigon_linear_bwd(tigon_context *context, const tigon_linear_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_linear_bwd_problem p;
  TIGON_TRY(prepare_bwd(context, args, false, &p));
  if (p.rows == 0 || p.k == 0) p.dx = NULL;
  if (p.n == 0 || p.k == 0) p.dw = NULL;
  if (p.n == 0) p.db = NULL;
  if (!p.dx && !p.dw && !p.db) return TIGON_OK;
  return TIGON_CALL_SLOT(context, linear_bwd, p.dtype, &p);
}

tigon_status tigon_linear_bwd_workspace(tigon_context *context, const tigon_linear_bwd_args *args, size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_linear_bwd_problem p;
  TIGON_TRY(tigon_check_query(context, &tigon_linear_bwd_schema, bytes));
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  *bytes = 0; /* no backend needs any yet */
  return TIGON_OK;
}
