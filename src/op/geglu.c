#include <tigon/op/geglu.h>

#include "op/front.h"

#define A tigon_geglu_fwd_args
static const tigon_field fwd[] = {
    IN(a, "*c", SAME, ROWS),        IN(b, "*c", SAME, ROWS), OUT(c, "*c", SAME, ROWS, "a b"),
    CHOICE(approx, TIGON_GELU_ERF), RESERVED(reserved),
};
#undef A

#define A tigon_geglu_bwd_args
static const tigon_field bwd[] = {
    IN(a, "*c", SAME, ROWS),
    IN(dc, "*c", SAME, ROWS),
    IN(b, "*c", SAME, ROWS),
    OUT(da, "*c", SAME, ROWS, "dc a b"),
    OUT(db, "*c", SAME, ROWS, "dc a b"),
    CHOICE(approx, TIGON_GELU_ERF),
    RESERVED(reserved),
};

TIGON_MAP_ENTRY(geglu, fwd, fwd, (tigon_map_numbers){.approx = a->approx}, 2, &a->a, &a->b, &a->c)
TIGON_MAP_ENTRY(geglu, bwd, bwd, (tigon_map_numbers){.approx = a->approx}, 3, &a->dc, &a->a, &a->b, &a->da, &a->db)
