#include "cpu/map.h"

TIGON_INLINE map_out scaled(map_in in) { return (map_out){.a = vf_mul(in.a, vf_set(*in.numbers->factor))}; }

MAP(scale_fwd, 1, 1, scaled)
