#include <tigon/op/geglu.h>

#include "op/front.h"

tigon_status tigon_geglu_fwd(tigon_context *context, const tigon_geglu_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "geglu_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_geglu_fwd_args a = *args;
  tigon_geglu_fwd_problem p = {.approx = a.approx};
  TIGON_TRY(tigon_check_gate_fwd(context, call, &a.a, &a.b, &a.c, &p));
  TIGON_TRY(tigon_check_choice(context, call, "approx", (int)a.approx, TIGON_GELU_ERF));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, geglu_fwd, p.dtype, &p);
}

tigon_status tigon_geglu_bwd(tigon_context *context, const tigon_geglu_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "geglu_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_geglu_bwd_args a = *args;
  tigon_geglu_bwd_problem p = {.approx = a.approx};
  TIGON_TRY(tigon_check_gate_bwd(context, call, &a.dc, &a.a, &a.b, &a.da, &a.db, &p));
  TIGON_TRY(tigon_check_choice(context, call, "approx", (int)a.approx, TIGON_GELU_ERF));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  return TIGON_CALL_SLOT(context, geglu_bwd, p.dtype, &p);
}
