#include <tigon/op/group_norm.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_group_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "bn*", SAME, FREE),           DIVISOR(groups, "g", 'n'),      MAY(w, "n", SAME_OR_F32, DENSE),
    MAY(b, "n", SAME_OR_F32, DENSE),    OUT(y, "bn*", SAME, FREE, "x"), WANT(mean, "bg", F32, DENSE, NULL),
    WANT(rstd, "bg", F32, DENSE, NULL), NUMBER(eps, 0, FLT_MAX),        RESERVED(reserved),
};
DESCRIBE(group_norm, fwd, fwd);
#undef A

#define A tigon_group_norm_bwd_args
static const tigon_field bwd[] = {
    IN(x, "bn*", SAME, FREE),
    DIVISOR(groups, "g", 'n'),
    IN(dy, "bn*", SAME, FREE),
    MAY(w, "n", SAME_OR_F32, DENSE),
    IN(mean, "bg", F32, DENSE),
    IN(rstd, "bg", F32, DENSE),
    OUT(dx, "bn*", SAME, FREE, "dy x"),
    WANT(dw, "n", SAME_OR_F32, DENSE, NULL),
    WANT(db, "n", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(group_norm, bwd, bwd);
#undef A

/* x is [B, C, ...]; its spatial dimensions are one run of elements. */
static int64_t run_of(const tigon_tensor *t) {
  int64_t run = 1;
  for (int d = 2; d < t->ndim; ++d) run *= t->shape[d];
  return run;
}

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
  tigon_group_norm_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_group_norm_fwd_schema, args, &a, false));
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
  tigon_group_norm_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_group_norm_bwd_schema, args, &a, shape_only));
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
  TIGON_TRY(tigon_check_workspace(context, args->workspace, args->workspace_bytes, bytes));
  if (p.channels == 0 || ((p.batch == 0 || p.run == 0) && !p.dw && !p.db)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, group_norm_bwd, p.dtype, &p);
}

tigon_status tigon_group_norm_bwd_workspace(tigon_context *context, const tigon_group_norm_bwd_args *args,
                                            size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_group_norm_bwd_problem p;
  TIGON_TRY(tigon_check_query(context, &tigon_group_norm_bwd_schema, bytes));
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return TIGON_ASK_WORKSPACE(context, group_norm_bwd, p.dtype, &p, bytes);
}
