#include <tigon/op/relu_squared.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_relu_squared_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    OUT(y, "*c", SAME, ROWS, "x"),
    RESERVED(reserved),
};
DESCRIBE(relu_squared, fwd, fwd);
#undef A

#define A tigon_relu_squared_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    RESERVED(reserved),
};
DESCRIBE(relu_squared, bwd, bwd);
#undef A

tigon_status tigon_relu_squared_fwd(tigon_context *context, const tigon_relu_squared_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  const char *call = "relu_squared_fwd";
  tigon_relu_squared_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_relu_squared_fwd_schema, args, &a, false));
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
  tigon_relu_squared_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_relu_squared_bwd_schema, args, &a, false));
  tigon_relu_squared_bwd_problem p = {.cols = tigon_last_extent(&a.x), .dtype = a.x.dtype};
  const tigon_tensor *const tensors[] = {&a.dy, &a.x, &a.dx};
  tigon_rows *const rows[] = {&p.dy, &p.x, &p.dx};
  TIGON_TRY(tigon_collapse(context, call, 1, TIGON_COUNT(tensors), tensors, rows, &p.space));
  if (p.space.rows == 0 || p.cols == 0) return TIGON_OK;
  tigon_flatten(TIGON_COUNT(rows), rows, &p.space, &p.cols);
  return TIGON_CALL_SLOT(context, relu_squared_bwd, p.dtype, &p);
}
