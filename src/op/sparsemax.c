#include <tigon/op/sparsemax.h>

#include "op/front.h"

#define A tigon_sparsemax_fwd_args
static const tigon_field fwd[] = {IN(x, "*c", SAME, ROWS), OUT(y, "*c", SAME, ROWS, "x"), RESERVED(reserved)};
#undef A

#define A tigon_sparsemax_bwd_args
static const tigon_field bwd[] = {
    IN(y, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    OUT(dx, "*c", SAME, ROWS, "dy y"),
    RESERVED(reserved),
};

static tigon_status prepare_fwd(tigon_context *context, const tigon_sparsemax_fwd_args *a, tigon_sparsemax_problem *p) {
  *p = (tigon_sparsemax_problem){TIGON_ROWS_OF(x)};
  return TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->y, &p->y});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_sparsemax_bwd_args *a, tigon_sparsemax_problem *p) {
  *p = (tigon_sparsemax_problem){TIGON_ROWS_OF(y)};
  return TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->dy}, {&a->y, &p->y}, {&a->dx, &p->dx});
}

TIGON_ENTRY(sparsemax, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
TIGON_ENTRY(sparsemax, bwd, bwd, prepare_bwd, TIGON_NO_ELEMENTS(p))
