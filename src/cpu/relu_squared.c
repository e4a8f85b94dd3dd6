#include "cpu/map.h"

TIGON_INLINE vf relu(vf x) { return vf_max(vf_zero(), x); }

/* y of x. */
TIGON_INLINE map_out square(map_in in) { return (map_out){.a = vf_mul(relu(in.a), relu(in.a))}; }

/* dx of dy and x: twice the product, because twice a factor may overflow. */
TIGON_INLINE map_out slope(map_in in) { return (map_out){.a = vf_mul(vf_mul(relu(in.b), in.a), vf_set(2.0f))}; }

MAP(relu_squared_fwd, 1, 1, square)
MAP(relu_squared_bwd, 2, 1, slope)
