#include <tigon/op/linear.h>

#include <inttypes.h>

#include "op/front.h"

/* name is "y" of "x": the leading dimensions of `a` must be b's, its last one is checked apart. */
static tigon_status check_leading(tigon_context *context, const char *call, const char *a_name, const tigon_tensor *a,
                                  const char *b_name, const tigon_tensor *b) {
  if (!tigon_present(a) || !tigon_present(b)) return TIGON_OK;
  if (a->ndim != b->ndim)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: %s.ndim is %d, must be %d (%s.ndim)", call, a_name,
                      (int)a->ndim, (int)b->ndim, b_name);
  for (int i = 0; i < b->ndim - 1; ++i)
    TIGON_TRY(tigon_check_same_extent(context, call, a_name, a, i, (tigon_dim){b_name, b, i}));
  return TIGON_OK;
}

static tigon_status check_last(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                               tigon_dim other) {
  return tigon_check_same_extent(context, call, name, a, a->ndim - 1, other);
}

/* [n, k] */
static tigon_status check_matrix(tigon_context *context, const char *call, const char *name, const tigon_tensor *a,
                                 tigon_dim n, tigon_dim k) {
  TIGON_TRY(tigon_check_ndim(context, call, name, a, 2));
  TIGON_TRY(tigon_check_same_extent(context, call, name, a, 0, n));
  return tigon_check_same_extent(context, call, name, a, 1, k);
}

tigon_status tigon_linear_fwd(tigon_context *context, const tigon_linear_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "linear_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_linear_fwd_args a = *args;
  tigon_arg list[] = {
      {"x", &a.x, TIGON_FLOATS, TIGON_IN, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN, NULL},
      {"b", &a.b, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"y", &a.y, TIGON_FLOATS, TIGON_OUT, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  const tigon_dim n = {"w", &a.w, 0};
  TIGON_TRY(tigon_check_ndim(context, call, "w", &a.w, 2));
  TIGON_TRY(check_last(context, call, "w", &a.w, tigon_last_dim("x", &a.x)));
  TIGON_TRY(tigon_check_same_dtype(context, call, "w", &a.w, "x", &a.x, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_same_vector(context, call, "b", &a.b, n));
  TIGON_TRY(tigon_check_same_dtype(context, call, "b", &a.b, "x", &a.x, TIGON_F32));
  TIGON_TRY(check_leading(context, call, "y", &a.y, "x", &a.x));
  TIGON_TRY(check_last(context, call, "y", &a.y, n));
  TIGON_TRY(tigon_check_same_dtype(context, call, "y", &a.y, "x", &a.x, TIGON_F32));

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

/* Shapes and dtypes of a backward call whose tensors are each right on their own. */
static tigon_status check_bwd(tigon_context *context, const char *call, const tigon_linear_bwd_args *a) {
  if (tigon_present(&a->dx) && !tigon_present(&a->w))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: w is absent, must be there for dx", call);
  if (tigon_present(&a->dw) && !tigon_present(&a->x))
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: x is absent, must be there for dw", call);
  const bool from_w = tigon_present(&a->w), from_x = tigon_present(&a->x);
  const char *main_name = from_w ? "w" : from_x ? "x" : "dy";
  const tigon_tensor *main = from_w ? &a->w : from_x ? &a->x : &a->dy;
  const tigon_dim n = tigon_last_dim("dy", &a->dy), k = tigon_last_dim(main_name, main);
  TIGON_TRY(tigon_check_ndim(context, call, "w", &a->w, 2));
  TIGON_TRY(tigon_check_same_extent(context, call, "w", &a->w, 0, n));
  TIGON_TRY(check_last(context, call, "x", &a->x, k));
  TIGON_TRY(check_last(context, call, "dx", &a->dx, k));
  TIGON_TRY(check_leading(context, call, "x", &a->x, "dy", &a->dy));
  TIGON_TRY(check_leading(context, call, "dx", &a->dx, "dy", &a->dy));
  TIGON_TRY(check_matrix(context, call, "dw", &a->dw, n, k));
  TIGON_TRY(tigon_check_same_vector(context, call, "db", &a->db, n));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dy", &a->dy, main_name, main, TIGON_F32));
  TIGON_TRY(tigon_check_same_dtype(context, call, "x", &a->x, main_name, main, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dx", &a->dx, main_name, main, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dw", &a->dw, main_name, main, TIGON_F32));
  TIGON_TRY(tigon_check_same_dtype(context, call, "db", &a->db, main_name, main, TIGON_F32));
  return tigon_check_flag(context, call, "accumulate_dw", a->accumulate_dw);
}

/* Checks and collapses the call; `shape_only` for the workspace query. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_linear_bwd_args *args, bool shape_only,
                                tigon_linear_bwd_problem *p) {
  const char *call = "linear_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_linear_bwd_args a = *args;
  tigon_arg list[] = {
      {"dy", &a.dy, TIGON_FLOATS, TIGON_IN, NULL},
      {"x", &a.x, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL, NULL},
      {"dx", &a.dx, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL, NULL},
      {"dw", &a.dw, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL, NULL},
      {"db", &a.db, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), shape_only));
  TIGON_TRY(check_bwd(context, call, &a));
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
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "linear_bwd_workspace: bytes is NULL");
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  *bytes = 0; /* no backend needs any yet */
  return TIGON_OK;
}
