#include "norm_bwd.cl"

NORM_FWD_KERNEL(layer_norm_fwd, true)
NORM_BWD_KERNEL(layer_norm_bwd, true)
