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
  tigon_relu_squared_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_relu_squared_fwd_schema, args, &a, false));
  tigon_map_problem p = {0};
  TIGON_RUN_MAP(context, relu_squared_fwd, &p, 1, &a.x, &a.y);
}

tigon_status tigon_relu_squared_bwd(tigon_context *context, const tigon_relu_squared_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_relu_squared_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_relu_squared_bwd_schema, args, &a, false));
  tigon_map_problem p = {0};
  TIGON_RUN_MAP(context, relu_squared_bwd, &p, 2, &a.dy, &a.x, &a.dx);
}
