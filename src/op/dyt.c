#include <tigon/op/dyt.h>

#include "op/front.h"

#define A tigon_dyt_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(alpha, "1 one number", SAME_OR_F32, DENSE),
    IN(gamma, "c", SAME_OR_F32, DENSE),
    MAY(beta, "c", SAME_OR_F32, DENSE),
    OUT(y, "*c", SAME, ROWS, "x"),
    RESERVED(reserved),
};
#undef A

#define A tigon_dyt_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    IN(alpha, "1 one number", SAME_OR_F32, DENSE),
    IN(gamma, "c", SAME_OR_F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    WANT(dalpha, "1 one number", SAME_OR_F32, DENSE, NULL),
    WANT(dgamma, "c", SAME_OR_F32, DENSE, NULL),
    WANT(dbeta, "c", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dgamma),
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_status prepare_fwd(tigon_context *context, const tigon_dyt_fwd_args *a, tigon_dyt_fwd_problem *p) {
  *p = (tigon_dyt_fwd_problem){TIGON_ROWS_OF(x), .number = tigon_vector_of(&a->alpha),
                               .vector = {tigon_vector_of(&a->gamma), tigon_vector_of(&a->beta)}};
  return TIGON_COLLAPSE(context, &p->space, {&a->x, &p->in[0]}, {&a->y, &p->out});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_dyt_bwd_args *a, tigon_dyt_bwd_problem *p,
                                size_t *bytes) {
  *p = (tigon_dyt_bwd_problem){TIGON_ROWS_OF(x),
                               .number = tigon_vector_of(&a->alpha),
                               .vector = {tigon_vector_of(&a->gamma)},
                               .dnumber = tigon_vector_of(&a->dalpha),
                               .dvector = {tigon_vector_of(&a->dgamma), tigon_vector_of(&a->dbeta)},
                               .slabs = a->workspace,
                               .accumulate = a->accumulate_dgamma != 0};
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->in[0]}, {&a->x, &p->in[1]}, {&a->dx, &p->out}));
  if (p->cols == 0) p->space = (tigon_row_space){0, 1, 0};
  return tigon_columns_sums(p) ? TIGON_ASK_WORKSPACE(context, dyt_bwd, p->dtype, p, bytes) : TIGON_OK;
}

TIGON_ENTRY(dyt, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
TIGON_ENTRY_WITH_WORKSPACE(dyt, bwd, bwd, prepare_bwd, p.space.rows == 0 && !tigon_columns_sums(&p))
