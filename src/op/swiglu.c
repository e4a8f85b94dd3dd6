#include <tigon/op/swiglu.h>

#include "op/front.h"

#define A tigon_swiglu_fwd_args
static const tigon_field fwd[] = {
    IN(a, "*c", SAME, ROWS), IN(b, "*c", SAME, ROWS), OUT(c, "*c", SAME, ROWS, "a b"),
    FINITE(gate_mult),       FINITE(down_mult),       NUMBER(clamp, 0, FLT_MAX),
    FINITE(up_offset),       RESERVED(reserved),
};
#undef A

#define A tigon_swiglu_bwd_args
static const tigon_field bwd[] = {
    IN(a, "*c", SAME, ROWS),
    IN(dc, "*c", SAME, ROWS),
    IN(b, "*c", SAME, ROWS),
    OUT(da, "*c", SAME, ROWS, "dc a b"),
    OUT(db, "*c", SAME, ROWS, "dc a b"),
    FINITE(gate_mult),
    FINITE(down_mult),
    NUMBER(clamp, 0, FLT_MAX),
    FINITE(up_offset),
    RESERVED(reserved),
};

#define NUMBERS tigon_gate_numbers(a->gate_mult, a->down_mult, a->clamp, a->up_offset)

TIGON_MAP_ENTRY(swiglu, fwd, fwd, NUMBERS, 2, &a->a, &a->b, &a->c)
TIGON_MAP_ENTRY(swiglu, bwd, bwd, NUMBERS, 3, &a->dc, &a->a, &a->b, &a->da, &a->db)
