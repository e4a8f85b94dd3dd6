#include <tigon/op/rms_norm.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_rms_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    OUT(y, "*c", SAME, ROWS, "x"),
    WANT(rstd, "r", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),
    FINITE(w_offset),
    CHOICE(casting, TIGON_CASTING_NONE),
    RESERVED(reserved),
};
DESCRIBE(rms_norm, fwd, fwd);
#undef A

#define A tigon_rms_norm_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    IN(rstd, "r", F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    WANT(dw, "c", SAME_OR_F32, DENSE, NULL),
    FINITE(w_offset),
    CHOICE(casting, TIGON_CASTING_NONE),
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(rms_norm, bwd, bwd);
#undef A

tigon_status tigon_rms_norm_fwd(tigon_context *context, const tigon_rms_norm_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "rms_norm_fwd";
  tigon_rms_norm_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_rms_norm_fwd_schema, args, &a, false));
  tigon_rms_norm_fwd_problem p = {
      .cols = tigon_last_extent(&a.x),
      .dtype = a.x.dtype,
      .w_dtype = a.w.dtype,
      .w = a.w.data,
      .rstd = a.rstd.data,
      .eps = (float)a.eps,
      .w_offset = (float)a.w_offset,
      .casting = a.casting,
  };
  const tigon_tensor *const tensors[] = {&a.x, &a.y};
  tigon_rows *const rows[] = {&p.x, &p.y};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, rms_norm_fwd, p.dtype, &p);
}

/* Checks and collapses the call; `shape_only` for the workspace query. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_rms_norm_bwd_args *args, bool shape_only,
                                tigon_rms_norm_bwd_problem *p) {
  const char *call = "rms_norm_bwd";
  tigon_rms_norm_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_rms_norm_bwd_schema, args, &a, shape_only));
  *p = (tigon_rms_norm_bwd_problem){
      .cols = tigon_last_extent(&a.x),
      .dtype = a.x.dtype,
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
  const tigon_tensor *const tensors[] = {&a.dy, &a.x, &a.dx};
  tigon_rows *const rows[] = {&p->dy, &p->x, &p->dx};
  return tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space);
}

/* A call without dw needs no slabs. */
static tigon_status bwd_workspace(tigon_context *context, const tigon_rms_norm_bwd_args *args,
                                  const tigon_rms_norm_bwd_problem *p, size_t *bytes) {
  *bytes = 0;
  return tigon_present(&args->dw) ? TIGON_ASK_WORKSPACE(context, rms_norm_bwd, p->dtype, p, bytes) : TIGON_OK;
}

tigon_status tigon_rms_norm_bwd(tigon_context *context, const tigon_rms_norm_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_rms_norm_bwd_problem p;
  size_t bytes;
  TIGON_TRY(prepare_bwd(context, args, false, &p));
  TIGON_TRY(bwd_workspace(context, args, &p, &bytes));
  TIGON_TRY(tigon_check_workspace(context, args->workspace, args->workspace_bytes, bytes));
  if (p.cols == 0 || (p.space.rows == 0 && !p.dw)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, rms_norm_bwd, p.dtype, &p);
}

tigon_status tigon_rms_norm_bwd_workspace(tigon_context *context, const tigon_rms_norm_bwd_args *args, size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_rms_norm_bwd_problem p;
  TIGON_TRY(tigon_check_query(context, &tigon_rms_norm_bwd_schema, bytes));
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return bwd_workspace(context, args, &p, bytes);
}
