#include <tigon/op/scale.h>

#include "op/front.h"

#define A tigon_scale_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(factor, "1 one number", F32, DENSE),
    OUT(y, "*c", SAME, ROWS, "x"),
    RESERVED(reserved),
};

TIGON_MAP_ENTRY(scale, fwd, fwd, ((tigon_map_numbers){.factor = a->factor.data}), 1, &a->x, &a->y)
