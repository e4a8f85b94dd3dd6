#include <tigon/op/swiglu.h>

#include "op/front.h"

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
  tigon_arg list[] = {
      {"a", &a.a, TIGON_FLOATS, TIGON_IN, NULL},
      {"b", &a.b, TIGON_FLOATS, TIGON_IN, NULL},
      {"c", &a.c, TIGON_FLOATS, TIGON_OUT, "a b"},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  for (int i = 1; i < TIGON_COUNT(list); ++i) {
    TIGON_TRY(tigon_check_same_shape(context, call, list[i].name, list[i].tensor, "a", &a.a));
    TIGON_TRY(tigon_check_same_dtype(context, call, list[i].name, list[i].tensor, "a", &a.a, TIGON_DTYPE_NONE));
  }
  TIGON_TRY(check_factors(context, call, a.gate_mult, a.down_mult, a.clamp));

  tigon_swiglu_fwd_problem p = {
      .cols = tigon_last_extent(&a.a),
      .dtype = a.a.dtype,
      .gate_mult = factor(a.gate_mult),
      .down_mult = factor(a.down_mult),
      .clamp = limit(a.clamp),
  };
  const tigon_tensor *const tensors[] = {&a.a, &a.b, &a.c};
  tigon_rows *const rows[] = {&p.a, &p.b, &p.c};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  tigon_plan plan;
  TIGON_TRY(tigon_front_plan(context, "swiglu", "fwd", p.dtype, p.space.rows, p.cols, &plan));
  return TIGON_CALL_SLOT(context, swiglu_fwd, p.dtype, &p, &plan);
}

tigon_status tigon_swiglu_bwd(tigon_context *context, const tigon_swiglu_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "swiglu_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_swiglu_bwd_args a = *args;
  tigon_arg list[] = {
      {"dc", &a.dc, TIGON_FLOATS, TIGON_IN, NULL},      {"a", &a.a, TIGON_FLOATS, TIGON_IN, NULL},
      {"b", &a.b, TIGON_FLOATS, TIGON_IN, NULL},        {"da", &a.da, TIGON_FLOATS, TIGON_OUT, "dc a b"},
      {"db", &a.db, TIGON_FLOATS, TIGON_OUT, "dc a b"},
  };
  TIGON_TRY(tigon_check_args(context, call, list, TIGON_COUNT(list), false));
  for (int i = 0; i < TIGON_COUNT(list); ++i) {
    TIGON_TRY(tigon_check_same_shape(context, call, list[i].name, list[i].tensor, "a", &a.a));
    TIGON_TRY(tigon_check_same_dtype(context, call, list[i].name, list[i].tensor, "a", &a.a, TIGON_DTYPE_NONE));
  }
  TIGON_TRY(check_factors(context, call, a.gate_mult, a.down_mult, a.clamp));

  tigon_swiglu_bwd_problem p = {
      .cols = tigon_last_extent(&a.a),
      .dtype = a.a.dtype,
      .gate_mult = factor(a.gate_mult),
      .down_mult = factor(a.down_mult),
      .clamp = limit(a.clamp),
  };
  const tigon_tensor *const tensors[] = {&a.dc, &a.a, &a.b, &a.da, &a.db};
  tigon_rows *const rows[] = {&p.dc, &p.a, &p.b, &p.da, &p.db};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  tigon_plan plan;
  TIGON_TRY(tigon_front_plan(context, "swiglu", "bwd", p.dtype, p.space.rows, p.cols, &plan));
  return TIGON_CALL_SLOT(context, swiglu_bwd, p.dtype, &p, &plan);
}
