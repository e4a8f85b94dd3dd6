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

#define LAYER_NORM .mean = a->mean.data, .casting = TIGON_CASTING_GEMMA
#define BIAS .b_dtype = a->b.dtype, .b = a->b.data, LAYER_NORM
#define DBIAS .db_dtype = a->db.dtype, .db = a->db.data, LAYER_NORM
NORM_FWD_ENTRY(layer_norm, x, BIAS, {&a->x, &p->x}, {&a->y, &p->y})
NORM_BWD_ENTRY(layer_norm, x, DBIAS, {&a->dy, &p->dy}, {&a->x, &p->x}, {&a->dx, &p->dx})
