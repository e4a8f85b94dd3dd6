#include <math.h>

#include "cpu/map.h"

/* The NaN that arithmetic makes, in place of the caller's: stores round the bits of others as a number's. */
TIGON_INLINE float factor_of(const map_in *in) {
  const float factor = *in->numbers->factor;
  return isnan(factor) ? NAN : factor;
}

TIGON_INLINE map_out scaled(map_in in) { return (map_out){.a = vf_mul(in.a, vf_set(factor_of(&in)))}; }

MAP(scale_fwd, 1, 1, scaled)
