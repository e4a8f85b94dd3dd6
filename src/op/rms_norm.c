#include <tigon/op/rms_norm.h>

#include "op/norm.h"

#define A tigon_rms_norm_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    MAY(w, "c", SAME_OR_F32, DENSE),
    OUT(y, "*c", SAME, ROWS, "x"),
    WANT(rstd, "r", F32, DENSE, NULL),
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
    IN(rstd, "r", F32, DENSE),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    WANT(dw, "c", SAME_OR_F32, DENSE, NULL),
    RMS_NORM_NUMBERS,
    FLAG(accumulate_dw),
    WORKSPACE,
    RESERVED(reserved),
};

NORM_FWD_ENTRY(rms_norm, x, RMS_NORM, {&a->x, &p->x}, {&a->y, &p->y})
NORM_BWD_ENTRY(rms_norm, x, RMS_NORM, {&a->dy, &p->dy}, {&a->x, &p->x}, {&a->dx, &p->dx})
