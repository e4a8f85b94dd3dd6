/* The third tensor is the factor. */
#include "map.cl"

MAP_KERNEL_UNLESS(scale_fwd, k.in_place && FLOATS_OF(t2)[0] == 1, 1, 1, out[0] = in[0] * FLOATS_OF(t2)[0])
