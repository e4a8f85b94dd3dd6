#include <tigon/op/group_norm.h>

#include "op/front.h"

/* What both calls check: x [B, C, ...] with its spatial dimensions as one run, and groups. */
typedef struct group_args {
  const char *call;
  const tigon_tensor *x, *mean, *rstd;
  int64_t groups;
} group_args;

static int64_t run_of(const tigon_tensor *t) {
  int64_t run = 1;
  for (int d = 2; d < t->ndim; ++d) run *= t->shape[d];
  return run;
}

static tigon_status check_groups(tigon_context *context, const group_args *a) {
  const tigon_tensor *x = a->x;
  if (x->ndim < 2)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: x.ndim is %d, must be 2 or more", a->call, (int)x->ndim);
  if (a->groups < 1 || x->shape[1] % a->groups != 0)
    return tigon_fail(context, TIGON_ERROR_INVALID, "%s: groups is %lld, must divide %lld (x.shape[1])", a->call,
                      (long long)a->groups, (long long)x->shape[1]);
  const tigon_tensor *const statistics[] = {a->mean, a->rstd};
  const char *const names[] = {"mean", "rstd"};
  for (int i = 0; i < 2; ++i) {
    TIGON_TRY(tigon_check_ndim(context, a->call, names[i], statistics[i], 2));
    TIGON_TRY(tigon_check_extent(context, a->call, names[i], statistics[i], 0, x->shape[0], "x.shape[0]"));
    TIGON_TRY(tigon_check_extent(context, a->call, names[i], statistics[i], 1, a->groups, "groups"));
  }
  return TIGON_OK;
}

/* Where x is [B, C], its last dimension is that of channels, whose stride is free. */
static int layout_of(const tigon_tensor *x) { return x->ndim == 2 ? TIGON_FREE_LAST : 0; }

/* [B, C] planes of `run` elements end to end. */
static tigon_status planes(tigon_context *context, const char *call, const char *name, const tigon_tensor *t,
                           tigon_planes *out) {
  int64_t stride = 1;
  for (int d = t->ndim - 1; d >= 2; --d) {
    if (t->shape[d] != 1 && t->strides[d] != stride)
      return tigon_fail(context, TIGON_ERROR_INVALID, "%s: %s.strides[%d] is %lld, must be %lld (a contiguous run)",
                        call, name, d, (long long)t->strides[d], (long long)stride);
    stride *= t->shape[d];
  }
  *out = (tigon_planes){t->data, t->strides[0], t->strides[1]};
  return TIGON_OK;
}

tigon_status tigon_group_norm_fwd(tigon_context *context, const tigon_group_norm_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "group_norm_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_group_norm_fwd_args a = *args;
  const int layout = layout_of(&a.x);
  tigon_arg list[] = {
      {"x", &a.x, TIGON_FLOATS, TIGON_IN | layout, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"b", &a.b, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"y", &a.y, TIGON_FLOATS, TIGON_OUT | layout, "x"},
      {"mean", &a.mean, TIGON_BIT(TIGON_F32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"rstd", &a.rstd, TIGON_BIT(TIGON_F32), TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  TIGON_TRY(tigon_check_same_shape(context, call, "y", &a.y, "x", &a.x));
  TIGON_TRY(tigon_check_same_dtype(context, call, "y", &a.y, "x", &a.x, TIGON_DTYPE_NONE));
  const group_args groups = {call, &a.x, &a.mean, &a.rstd, a.groups};
  TIGON_TRY(check_groups(context, &groups));
  TIGON_TRY(tigon_check_vector(context, call, "w", &a.w, a.x.shape[1], "x.shape[1]"));
  TIGON_TRY(tigon_check_vector(context, call, "b", &a.b, a.x.shape[1], "x.shape[1]"));
  TIGON_TRY(tigon_check_same_dtype(context, call, "w", &a.w, "x", &a.x, TIGON_F32));
  TIGON_TRY(tigon_check_same_dtype(context, call, "b", &a.b, "x", &a.x, TIGON_F32));
  TIGON_TRY(tigon_check_number(context, call, "eps", a.eps, 0, FLT_MAX));

  tigon_group_norm_fwd_problem p = {
      .batch = a.x.shape[0],
      .groups = a.groups,
      .channels = a.x.shape[1] / a.groups,
      .run = run_of(&a.x),
      .dtype = a.x.dtype,
      .w_dtype = a.w.dtype,
      .b_dtype = a.b.dtype,
      .w = a.w.data,
      .b = a.b.data,
      .mean = a.mean.data,
      .rstd = a.rstd.data,
      .eps = (float)a.eps,
  };
  TIGON_TRY(planes(context, call, "x", &a.x, &p.x));
  TIGON_TRY(planes(context, call, "y", &a.y, &p.y));
  if (p.batch == 0 || p.channels == 0 || p.run == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, group_norm_fwd, p.dtype, &p);
}

/* Checks and collapses the call; `shape_only` for the workspace query. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_group_norm_bwd_args *args, bool shape_only,
                                tigon_group_norm_bwd_problem *p) {
  const char *call = "group_norm_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_group_norm_bwd_args a = *args;
  const int layout = layout_of(&a.x);
  tigon_arg list[] = {
      {"dy", &a.dy, TIGON_FLOATS, TIGON_IN | layout, NULL},
      {"x", &a.x, TIGON_FLOATS, TIGON_IN | layout, NULL},
      {"w", &a.w, TIGON_FLOATS, TIGON_IN | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"mean", &a.mean, TIGON_BIT(TIGON_F32), TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"rstd", &a.rstd, TIGON_BIT(TIGON_F32), TIGON_IN | TIGON_CONTIGUOUS, NULL},
      {"dx", &a.dx, TIGON_FLOATS, TIGON_OUT | layout, "dy x"},
      {"dw", &a.dw, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
      {"db", &a.db, TIGON_FLOATS, TIGON_OUT | TIGON_OPTIONAL | TIGON_CONTIGUOUS, NULL},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), shape_only));
  TIGON_TRY(tigon_check_same_shape(context, call, "dy", &a.dy, "x", &a.x));
  TIGON_TRY(tigon_check_same_shape(context, call, "dx", &a.dx, "x", &a.x));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dy", &a.dy, "x", &a.x, TIGON_DTYPE_NONE));
  TIGON_TRY(tigon_check_same_dtype(context, call, "dx", &a.dx, "x", &a.x, TIGON_DTYPE_NONE));
  const group_args groups = {call, &a.x, &a.mean, &a.rstd, a.groups};
  TIGON_TRY(check_groups(context, &groups));
  const tigon_tensor *const vectors[] = {&a.w, &a.dw, &a.db};
  const char *const names[] = {"w", "dw", "db"};
  for (int i = 0; i < 3; ++i) {
    TIGON_TRY(tigon_check_vector(context, call, names[i], vectors[i], a.x.shape[1], "x.shape[1]"));
    TIGON_TRY(tigon_check_same_dtype(context, call, names[i], vectors[i], "x", &a.x, TIGON_F32));
  }
  TIGON_TRY(tigon_check_flag(context, call, "accumulate_dw", a.accumulate_dw));

  *p = (tigon_group_norm_bwd_problem){
      .batch = a.x.shape[0],
      .groups = a.groups,
      .channels = a.x.shape[1] / a.groups,
      .run = run_of(&a.x),
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
      .accumulate = a.accumulate_dw != 0,
  };
  TIGON_TRY(planes(context, call, "dy", &a.dy, &p->dy));
  TIGON_TRY(planes(context, call, "x", &a.x, &p->x));
  return planes(context, call, "dx", &a.dx, &p->dx);
}

tigon_status tigon_group_norm_bwd(tigon_context *context, const tigon_group_norm_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_group_norm_bwd_problem p;
  size_t bytes;
  TIGON_TRY(prepare_bwd(context, args, false, &p));
  TIGON_TRY(TIGON_ASK_WORKSPACE(context, group_norm_bwd, p.dtype, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, "group_norm_bwd", args->workspace, args->workspace_bytes, bytes));
  if (p.channels == 0 || ((p.batch == 0 || p.run == 0) && !p.dw && !p.db)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, group_norm_bwd, p.dtype, &p);
}

tigon_status tigon_group_norm_bwd_workspace(tigon_context *context, const tigon_group_norm_bwd_args *args,
                                            size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_group_norm_bwd_problem p;
  if (!bytes) return tigon_fail(context, TIGON_ERROR_INVALID, "group_norm_bwd_workspace: bytes is NULL");
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return TIGON_ASK_WORKSPACE(context, group_norm_bwd, p.dtype, &p, bytes);
}
