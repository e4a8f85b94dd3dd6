/* The arguments of a gated activation with factors, a clamp and an offset. */
#ifndef TIGON_CPU_GATE_H
#define TIGON_CPU_GATE_H

#include "cpu/simd.h"
#include "problem/map.h"

/* vf_min and vf_max return their second operand when that is NaN. */
TIGON_INLINE vf gate_argument(const tigon_map_numbers *k, vf a) {
  return vf_mul(k->clamp > 0 ? vf_min(vf_set(k->clamp), a) : a, vf_set(k->gate_mult));
}
TIGON_INLINE vf gate_up(const tigon_map_numbers *k, vf b) {
  const vf clamped = k->clamp > 0 ? vf_min(vf_set(k->clamp), vf_max(vf_set(-k->clamp), b)) : b;
  return vf_add(clamped, vf_set(k->up_offset));
}

#endif
