/* scale, as its header writes it. */
#include "ref/ref.h"

static void fwd(const tigon_map_numbers *k, const double *x, double *y) { *y = (double)*k->factor * *x; }

TIGON_REF_MAP(scale_fwd, fwd)
