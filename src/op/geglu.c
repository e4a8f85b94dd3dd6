#include <tigon/op/geglu.h>

#include "op/describe.h"
#include "op/front.h"

#define A tigon_geglu_fwd_args
static const tigon_field fwd[] = {
    IN(a, "*c", SAME, ROWS),        IN(b, "*c", SAME, ROWS), OUT(c, "*c", SAME, ROWS, "a b"),
    CHOICE(approx, TIGON_GELU_ERF), RESERVED(reserved),
};
DESCRIBE(geglu, fwd, fwd);
#undef A

#define A tigon_geglu_bwd_args
static const tigon_field bwd[] = {
    IN(a, "*c", SAME, ROWS),
    IN(dc, "*c", SAME, ROWS),
    IN(b, "*c", SAME, ROWS),
    OUT(da, "*c", SAME, ROWS, "dc a b"),
    OUT(db, "*c", SAME, ROWS, "dc a b"),
    CHOICE(approx, TIGON_GELU_ERF),
    RESERVED(reserved),
};
DESCRIBE(geglu, bwd, bwd);
#undef A

tigon_status tigon_geglu_fwd(tigon_context *context, const tigon_geglu_fwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_geglu_fwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_geglu_fwd_schema, args, &a, false));
  tigon_map_problem p = {.numbers = {.approx = a.approx}};
  TIGON_RUN_MAP(context, geglu_fwd, &p, 2, &a.a, &a.b, &a.c);
}

tigon_status tigon_geglu_bwd(tigon_context *context, const tigon_geglu_bwd_args *args) {
  TIGON_KEEP_CALLER_STATE;
  tigon_geglu_bwd_args a;
  TIGON_TRY(tigon_check_entry(context, &tigon_geglu_bwd_schema, args, &a, false));
  tigon_map_problem p = {.numbers = {.approx = a.approx}};
  TIGON_RUN_MAP(context, geglu_bwd, &p, 3, &a.dc, &a.a, &a.b, &a.da, &a.db);
}
