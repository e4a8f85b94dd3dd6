#include <tigon/op/swiglu.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_swiglu_fwd_args
static const tigon_field fwd[] = {
    IN(a, "*c", SAME, ROWS), IN(b, "*c", SAME, ROWS), OUT(c, "*c", SAME, ROWS, "a b"),
    FINITE(gate_mult),       FINITE(down_mult),       NUMBER(clamp, 0, FLT_MAX),
    RESERVED(reserved),
};
DESCRIBE(swiglu, fwd, fwd);
#undef A

#define A tigon_swiglu_bwd_args
static const tigon_field bwd[] = {
    IN(a, "*c", SAME, ROWS),
    IN(dc, "*c", SAME, ROWS),
    IN(b, "*c", SAME, ROWS),
    OUT(da, "*c", SAME, ROWS, "dc a b"),
    OUT(db, "*c", SAME, ROWS, "dc a b"),
    FINITE(gate_mult),
    FINITE(down_mult),
    NUMBER(clamp, 0, FLT_MAX),
    RESERVED(reserved),
};
DESCRIBE(swiglu, bwd, bwd);
#undef A

tigon_status tigon_collapse_gate_fwd(tigon_context *context, const char *call, tigon_tensor *a, tigon_tensor *b,
                                     tigon_tensor *c, tigon_gate_fwd_problem *p) {
  p->cols = tigon_last_extent(a);
  p->dtype = a->dtype;
  const tigon_tensor *const tensors[] = {a, b, c};
  tigon_rows *const rows[] = {&p->a, &p->b, &p->c};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space));
  if (p->space.rows > 0 && p->cols > 0) tigon_flatten(TIGON_COUNT(rows), rows, &p->space, &p->cols);
  return TIGON_OK;
}

tigon_status tigon_collapse_gate_bwd(tigon_context *context, const char *call, tigon_tensor *dc, tigon_tensor *a,
                                     tigon_tensor *b, tigon_tensor *da, tigon_tensor *db, tigon_gate_bwd_problem *p) {
  p->cols = tigon_last_extent(a);
  p->dtype = a->dtype;
  const tigon_tensor *const tensors[] = {dc, a, b, da, db};
  tigon_rows *const rows[] = {&p->dc, &p->a, &p->b, &p->da, &p->db};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space));
  if (p->space.rows > 0 && p->cols > 0) tigon_flatten(TIGON_COUNT(rows), rows, &p->space, &p->cols);
  return TIGON_OK;
}

/* 0 means 1. */
static float factor(double mult) { return mult == 0 ? 1.0f : (float)mult; }
/* A clamp too small for f32 stays one. */
static float limit(double clamp) { return clamp > 0 && (float)clamp == 0 ? FLT_TRUE_MIN : (float)clamp; }

tigon_status tigon_swiglu_fwd(tigon_context *context, const tigon_swiglu_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "swiglu_fwd";
  tigon_swiglu_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_swiglu_fwd_schema, args, &a, false));
  tigon_swiglu_fwd_problem p = {
      .gate_mult = factor(a.gate_mult), .down_mult = factor(a.down_mult), .clamp = limit(a.clamp)};
  TIGON_TRY(tigon_collapse_gate_fwd(context, call, &a.a, &a.b, &a.c, &p));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, swiglu_fwd, p.dtype, &p);
}

tigon_status tigon_swiglu_bwd(tigon_context *context, const tigon_swiglu_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "swiglu_bwd";
  tigon_swiglu_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_swiglu_bwd_schema, args, &a, false));
  tigon_swiglu_bwd_problem p = {
      .gate_mult = factor(a.gate_mult), .down_mult = factor(a.down_mult), .clamp = limit(a.clamp)};
  TIGON_TRY(tigon_collapse_gate_bwd(context, call, &a.dc, &a.a, &a.b, &a.da, &a.db, &p));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, swiglu_bwd, p.dtype, &p);
}
