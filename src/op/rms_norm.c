#include <tigon/op/rms_norm.h>

#include "op/norm.h"

#define A tigon_rms_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    MAY(z, "*c", SAME, ROWS),
    OUT(y, "*c", SAME, ROWS, "x z"),
    WANT(rstd, "r", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),
    RMS_NORM_NUMBERS,
    RESERVED(reserved),
};
#undef A

#define A tigon_rms_norm_quantised_args
static const tigon_field quantised[] = {
    IN(x, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    MAY(z, "*c", SAME, ROWS),
    OUT(q, "*c", QUANTISED, ROWS, NULL),
    OUT(scale, "r", F32, DENSE, NULL),
    NUMBER(eps, 0, FLT_MAX),
    RMS_NORM_NUMBERS,
    RESERVED(reserved),
};
#undef A

#define A tigon_rms_norm_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    MAY(z, "*c", SAME, ROWS),
    IN(rstd, "r", F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy x z"),
    WANT(dz, "*c", SAME, ROWS, "dy x z"),
    WANT(dw, "c", SAME_OR_F32, DENSE, NULL),
    RMS_NORM_NUMBERS,
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};

static tigon_status prepare_quantised(tigon_context *context, const tigon_rms_norm_quantised_args *a,
                                      tigon_norm_fwd_problem *p) {
  *p = (tigon_norm_fwd_problem){TIGON_ROWS_OF(x),        RMS_NORM,
                                .w_dtype = a->w.dtype,   .w = a->w.data,
                                .eps = (float)a->eps,    .q_dtype = a->q.dtype,
                                .q_scale = a->scale.data};
  return TIGON_COLLAPSE(context, &p->space, {&a->x, &p->x}, {&a->z, &p->z}, {&a->q, &p->q});
}

static tigon_status prepare_bwd(tigon_context *context, const tigon_rms_norm_bwd_args *a, tigon_norm_bwd_problem *p,
                                size_t *bytes) {
  *p = (tigon_norm_bwd_problem){NORM_BWD(x), RMS_NORM};
  if (tigon_present(&a->dz) && !tigon_present(&a->z))
    return tigon_refuse(context, "dz is there, must be absent without z");
  TIGON_TRY(TIGON_COLLAPSE(context, &p->space, {&a->dy, &p->dy}, {&a->x, &p->x}, {&a->dx, &p->dx}, {&a->z, &p->z},
                           {&a->dz, &p->dz}));
  return TIGON_NORM_WORKSPACE(context, rms_norm_bwd, p, bytes);
}

NORM_FWD_ENTRY(rms_norm, x, RMS_NORM, {&a->x, &p->x}, {&a->y, &p->y}, {&a->z, &p->z})
TIGON_ENTRY_WITH_WORKSPACE(rms_norm, bwd, bwd, prepare_bwd, tigon_norm_bwd_is_empty(&p))
/* A row without columns has the scale of zeros. */
TIGON_ENTRY(rms_norm, quantised, quantised, prepare_quantised, p.space.rows == 0)
