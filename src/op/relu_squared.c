#include <tigon/op/relu_squared.h>

#include "op/front.h"

#define A tigon_relu_squared_fwd_args
static const tigon_field fwd[] = {
    IN(x, "*c", SAME, ROWS),
    OUT(y, "*c", SAME, ROWS, "x"),
    RESERVED(reserved),
};
#undef A

#define A tigon_relu_squared_bwd_args
static const tigon_field bwd[] = {
    IN(x, "*c", SAME, ROWS),
    IN(dy, "*c", SAME, ROWS),
    OUT(dx, "*c", SAME, ROWS, "dy x"),
    RESERVED(reserved),
};

TIGON_MAP_ENTRY(relu_squared, fwd, fwd, (tigon_map_numbers){0}, 1, &a->x, &a->y)
TIGON_MAP_ENTRY(relu_squared, bwd, bwd, (tigon_map_numbers){0}, 2, &a->dy, &a->x, &a->dx)
