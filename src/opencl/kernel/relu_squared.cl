/* A NaN is not below 0 and passes. */
#include "map.cl"

static inline vf relu(vf x) { return either(x < 0, (vf)(0.0f), x); }

MAP_KERNEL(relu_squared_fwd, 1, 1, out[0] = relu(in[0]) * relu(in[0]))
/* dx of dy and x: twice the product, because twice a factor may overflow. */
MAP_KERNEL(relu_squared_bwd, 2, 1, out[0] = relu(in[1]) * in[0] * 2)
