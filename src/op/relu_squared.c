#include <tigon/op/relu_squared.h>

#include "op/front.h"

tigon_status tigon_relu_squared_fwd(tigon_context *context, const tigon_relu_squared_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "relu_squared_fwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_relu_squared_fwd_args a = *args;
  tigon_arg list[] = {
      {"x", &a.x, TIGON_FLOATS, TIGON_IN, NULL},
      {"y", &a.y, TIGON_FLOATS, TIGON_OUT, "x"},
  };
  TIGON_TRY(tigon_check_alike(context, call, list, TIGON_COUNT(list), "x", &a.x));

  tigon_relu_squared_fwd_problem p = {.cols = tigon_last_extent(&a.x), .dtype = a.x.dtype};
  const tigon_tensor *const tensors[] = {&a.x, &a.y};
  tigon_rows *const rows[] = {&p.x, &p.y};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  tigon_flatten(TIGON_COUNT(rows), rows, &p.space, &p.cols);
  return TIGON_CALL_SLOT(context, relu_squared_fwd, p.dtype, &p);
}

tigon_status tigon_relu_squared_bwd(tigon_context *context, const tigon_relu_squared_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "relu_squared_bwd";
  TIGON_TRY(tigon_check_call(context, call, args, args ? args->reserved : NULL, 4));
  tigon_relu_squared_bwd_args a = *args;
  tigon_arg list[] = {
      {"dy", &a.dy, TIGON_FLOATS, TIGON_IN, NULL},
      {"x", &a.x, TIGON_FLOATS, TIGON_IN, NULL},
      {"dx", &a.dx, TIGON_FLOATS, TIGON_OUT, "dy x"},
  };
  TIGON_TRY(tigon_check_alike(context, call, list, TIGON_COUNT(list), "x", &a.x));

  tigon_relu_squared_bwd_problem p = {.cols = tigon_last_extent(&a.x), .dtype = a.x.dtype};
  const tigon_tensor *const tensors[] = {&a.dy, &a.x, &a.dx};
  tigon_rows *const rows[] = {&p.dy, &p.x, &p.dx};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  tigon_flatten(TIGON_COUNT(rows), rows, &p.space, &p.cols);
  return TIGON_CALL_SLOT(context, relu_squared_bwd, p.dtype, &p);
}
