#include <tigon/op/layer_norm.h>

#include "op/norm.h"

#define A tigon_layer_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),           MAY(w, "c", SAME_OR_F32, DENSE),
    MAY(b, "c", SAME_OR_F32, DENSE),   OUT(y, "*c", SAME, ROWS, "x"),
    WANT(mean, "r", F32, DENSE, NULL), WANT(rstd, "r", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),           RESERVED(reserved),
};
#undef A

#define A tigon_layer_norm_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    IN(mean, "r", F32, DENSE),
    IN(rstd, "r", F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    WANT(dw, "c", SAME_OR_F32, DENSE, NULL),
    WANT(db, "c", SAME_OR_F32, DENSE, NULL),
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_status prepare_fwd(tigon_context *context, const tigon_layer_norm_fwd_args *a, tigon_norm_fwd_problem *p) {
  *p = (tigon_norm_fwd_problem){
      NORM_FWD(x), .b_dtype = a->b.dtype, .b = a->b.data, .mean = a->mean.data, .casting = TIGON_CASTING_GEMMA,
  };
  return TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->y, &p->y});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_layer_norm_bwd_args *a, tigon_norm_bwd_problem *p,
                                size_t *bytes) {
  *p = (tigon_norm_bwd_problem){
      NORM_BWD(x), .db_dtype = a->db.dtype, .db = a->db.data, .mean = a->mean.data, .casting = TIGON_CASTING_GEMMA,
  };
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->dy}, {&a->x, &p->x}, {&a->dx, &p->dx}));
  return TIGON_NORM_WORKSPACE(context, layer_norm_bwd, p, bytes);
}

TIGON_ENTRY(layer_norm, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
TIGON_ENTRY_WITH_WORKSPACE(layer_norm, bwd, bwd, prepare_bwd, tigon_norm_bwd_is_empty(&p))
