#include <tigon/op/swiglu.h>

#include "op/front.h"

tigon_status tigon_check_alike(tigon_context *context, const char *call, tigon_arg *list, int count, const char *name,
                               const tigon_tensor *like) {
  TIGON_TRY(tigon_check_args(context, call, list, count, false));
  for (int i = 0; i < count; ++i) {
    TIGON_TRY(tigon_check_same_shape(context, call, list[i].name, list[i].tensor, name, like));
    TIGON_TRY(tigon_check_same_dtype(context, call, list[i].name, list[i].tensor, name, like, TIGON_DTYPE_NONE));
  }
  return TIGON_OK;
}

tigon_status tigon_check_gate_fwd(tigon_context *context, const char *call, tigon_tensor *a, tigon_tensor *b,
                                  tigon_tensor *c, tigon_gate_fwd_problem *p) {
  tigon_arg list[] = {
      {"a", a, TIGON_FLOATS, TIGON_IN, NULL},
      {"b", b, TIGON_FLOATS, TIGON_IN, NULL},
      {"c", c, TIGON_FLOATS, TIGON_OUT, "a b"},
  };
  TIGON_TRY(tigon_check_alike(context, call, list, TIGON_COUNT(list), "a", a));
  p->cols = tigon_last_extent(a);
  p->dtype = a->dtype;
  const tigon_tensor *const tensors[] = {a, b, c};
  tigon_rows *const rows[] = {&p->a, &p->b, &p->c};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space));
  if (p->space.rows > 0 && p->cols > 0) tigon_flatten(TIGON_COUNT(rows), rows, &p->space, &p->cols);
  return TIGON_OK;
}

tigon_status tigon_check_gate_bwd(tigon_context *context, const char *call, tigon_tensor *dc, tigon_tensor *a,
                                  tigon_tensor *b, tigon_tensor *da, tigon_tensor *db, tigon_gate_bwd_problem *p) {
  tigon_arg list[] = {
      {"dc", dc, TIGON_FLOATS, TIGON_IN, NULL},      {"a", a, TIGON_FLOATS, TIGON_IN, NULL},
      {"b", b, TIGON_FLOATS, TIGON_IN, NULL},        {"da", da, TIGON_FLOATS, TIGON_OUT, "dc a b"},
      {"db", db, TIGON_FLOATS, TIGON_OUT, "dc a b"},
  };
  TIGON_TRY(tigon_check_alike(context, call, list, TIGON_COUNT(list), "a", a));
  p->cols = tigon_last_extent(a);
  p->dtype = a->dtype;
  const tigon_tensor *const tensors[] = {dc, a, b, da, db};
  tigon_rows *const rows[] = {&p->dc, &p->a, &p->b, &p->da, &p->db};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p->space));
  if (p->space.rows > 0 && p->cols > 0) tigon_flatten(TIGON_COUNT(rows), rows, &p->space, &p->cols);
  return TIGON_OK;
}

/* gate_mult, down_mult, clamp. */
static tigon_status check_factors(tigon_context *context, const char *call, double gate_mult, double down_mult,
                                  double clamp) {
  TIGON_TRY(tigon_check_number(context, call, "gate_mult", gate_mult, -FLT_MAX, FLT_MAX));
  TIGON_TRY(tigon_check_number(context, call, "down_mult", down_mult, -FLT_MAX, FLT_MAX));
  return tigon_check_number(context, call, "clamp", clamp, 0, FLT_MAX);
}

/* 0 means 1. */
static float factor(double mult) { return mult == 0 ? 1.0f : (float)mult; }
/* A clamp that is there stays there. */
static float limit(double clamp) { return clamp > 0 && (float)clamp == 0 ? FLT_TRUE_MIN : (float)clamp; }

tigon_status tigon_swiglu_fwd(tigon_context *context, const tigon_swiglu_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "swiglu_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_swiglu_fwd_args a = *args;
  tigon_swiglu_fwd_problem p = {
      .gate_mult = factor(a.gate_mult), .down_mult = factor(a.down_mult), .clamp = limit(a.clamp)};
  TIGON_TRY(tigon_check_gate_fwd(context, call, &a.a, &a.b, &a.c, &p));
  TIGON_TRY(check_factors(context, call, a.gate_mult, a.down_mult, a.clamp));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, swiglu_fwd, p.dtype, &p);
}

tigon_status tigon_swiglu_bwd(tigon_context *context, const tigon_swiglu_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "swiglu_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_swiglu_bwd_args a = *args;
  tigon_swiglu_bwd_problem p = {
      .gate_mult = factor(a.gate_mult), .down_mult = factor(a.down_mult), .clamp = limit(a.clamp)};
  TIGON_TRY(tigon_check_gate_bwd(context, call, &a.dc, &a.a, &a.b, &a.da, &a.db, &p));
  TIGON_TRY(check_factors(context, call, a.gate_mult, a.down_mult, a.clamp));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, swiglu_bwd, p.dtype, &p);
}
