#include <tigon/op/layer_norm.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_layer_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),           MAY(w, "c", SAME_OR_F32, DENSE),
    MAY(b, "c", SAME_OR_F32, DENSE),   OUT(y, "*c", SAME, ROWS, "x"),
    WANT(mean, "r", F32, DENSE, NULL), WANT(rstd, "r", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),           RESERVED(reserved),
};
DESCRIBE(layer_norm, fwd, fwd);
#undef A

#define A tigon_layer_norm_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    IN(mean, "r", F32, DENSE),
    IN(rstd, "r", F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    WANT(dw, "c", SAME_OR_F32, DENSE, NULL),
    WANT(db, "c", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};
DESCRIBE(layer_norm, bwd, bwd);
#undef A

tigon_status tigon_layer_norm_fwd(tigon_context *context, const tigon_layer_norm_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "layer_norm_fwd";
  tigon_layer_norm_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_layer_norm_fwd_schema, args, &a, false));
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
  tigon_layer_norm_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_layer_norm_bwd_schema, args, &a, shape_only));
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
  TIGON_TRY(tigon_check_workspace(context, args->workspace, args->workspace_bytes, bytes));
  if (p.cols == 0 || (p.space.rows == 0 && !p.dw && !p.db)) return TIGON_OK;
  return TIGON_CALL_SLOT(context, layer_norm_bwd, p.dtype, &p);
}

tigon_status tigon_layer_norm_bwd_workspace(tigon_context *context, const tigon_layer_norm_bwd_args *args,
                                            size_t *bytes) {
  TIGON_KEEP_CALLER_STATE;
  tigon_layer_norm_bwd_problem p;
  TIGON_TRY(tigon_check_query(context, &tigon_layer_norm_bwd_schema, bytes));
  TIGON_TRY(prepare_bwd(context, args, true, &p));
  return bwd_workspace(context, args, &p, bytes);
}
