#include <tigon/op/fused_add_rms_norm.h>

#include "op/norm.h"

#define A tigon_fused_add_rms_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(residual, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    OUT(s, "*c", SAME, ROWS, "x residual"),
    OUT(y, "*c", SAME, ROWS, "x residual"),
    WANT(rstd, "r", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),
    RMS_NORM_NUMBERS,
    RESERVED(reserved),
};
#undef A

#define A tigon_fused_add_rms_norm_bwd_args
static const tigon_field bwd[] = {
    IN(s, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    MAY(ds, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    IN(rstd, "r", F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy ds s"),
    WANT(dw, "c", SAME_OR_F32, DENSE, NULL),
    RMS_NORM_NUMBERS,
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_status prepare_fwd(tigon_context *context, const tigon_fused_add_rms_norm_fwd_args *a,
                                tigon_norm_fwd_problem *p) {
  *p = (tigon_norm_fwd_problem){NORM_FWD(x), RMS_NORM};
  return TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->residual, &p->residual}, {&a->s, &p->s},
                        {&a->y, &p->y});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_fused_add_rms_norm_bwd_args *a,
                                tigon_norm_bwd_problem *p, size_t *bytes) {
  *p = (tigon_norm_bwd_problem){NORM_BWD(s), RMS_NORM};
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->dy}, {&a->ds, &p->ds}, {&a->s, &p->x}, {&a->dx, &p->dx}));
  return TIGON_NORM_WORKSPACE(context, fused_add_rms_norm_bwd, p, bytes);
}

TIGON_ENTRY(fused_add_rms_norm, fwd, fwd, prepare_fwd, TIGON_NO_ELEMENTS(p))
TIGON_ENTRY_WITH_WORKSPACE(fused_add_rms_norm, bwd, bwd, prepare_bwd, tigon_norm_bwd_is_empty(&p))
