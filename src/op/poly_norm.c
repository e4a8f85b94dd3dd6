#include <tigon/op/poly_norm.h>

#include "op/front.h"

#define A tigon_poly_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(w, "3", SAME_OR_F32, DENSE),
    MAY(b, "1 one number", SAME_OR_F32, DENSE),
    OUT(y, "*c", SAME, ROWS, "x"),
    WANT(rstd, "*3", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),
    RESERVED(reserved),
};
#undef A

#define A tigon_poly_norm_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    IN(w, "3", SAME_OR_F32, DENSE),
    IN(rstd, "*3", F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    WANT(dw, "3", SAME_OR_F32, DENSE, NULL),
    WANT(db, "1 one number", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_status prepare_fwd(tigon_context *context, const tigon_poly_norm_fwd_args *a, tigon_poly_norm_problem *p) {
  *p = (tigon_poly_norm_problem){TIGON_ROWS_OF(x), .w = tigon_vector_of(&a->w), .b = tigon_vector_of(&a->b),
                                 .rstd = a->rstd.data, .eps = (float)a->eps};
  return TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->y, &p->out});
}

/* A call without sums needs no workspace. */
static tigon_status prepare_bwd(tigon_context *context, const tigon_poly_norm_bwd_args *a, tigon_poly_norm_problem *p,
                                size_t *bytes) {
  const bool sums = tigon_present(&a->dw) || tigon_present(&a->db);
  *p = (tigon_poly_norm_problem){TIGON_ROWS_OF(x),
                                 .w = tigon_vector_of(&a->w),
                                 .dw = tigon_vector_of(&a->dw),
                                 .db = tigon_vector_of(&a->db),
                                 .rstd = a->rstd.data,
                                 .sums = sums ? a->workspace : NULL,
                                 .accumulate = a->accumulate_dw != 0};
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->dy}, {&a->x, &p->x}, {&a->dx, &p->out}));
  if (p->cols == 0) p->space = (tigon_row_space){0, 1, 0};
  return sums ? TIGON_ASK_WORKSPACE(context, poly_norm_bwd, p->dtype, p, bytes) : TIGON_OK;
}

TIGON_ENTRY(poly_norm, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
TIGON_ENTRY_WITH_WORKSPACE(poly_norm, bwd, bwd, prepare_bwd, p.space.rows == 0 && !p.dw.data && !p.db.data)
