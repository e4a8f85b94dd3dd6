/* A head's logits, one at a time. The oracle has formulas of its own. */
#ifndef TIGON_CORE_LOGIT_MAP_H
#define TIGON_CORE_LOGIT_MAP_H

#include <math.h>

#include "problem/loss.h"

TIGON_SHARED float tigon_logit_scale(const tigon_logit_map *m) { return m->scale != 0 ? m->scale : 1; }

/* What a kernel multiplies u by before tanh; 0 without a cap. */
TIGON_SHARED float tigon_logit_inner(const tigon_logit_map *m) {
  return m->cap > 0 ? tigon_logit_scale(m) / m->cap : 0;
}

/* z of u. */
TIGON_SHARED double tigon_logit(const tigon_logit_map *m, double u) {
  const double x = u * (double)tigon_logit_scale(m), cap = (double)m->cap;
  return cap > 0 ? cap * tanh(x / cap) : x;
}

/* dz / du but for the scale: 1 / cosh^2 keeps its digits where 1 - tanh^2 has none. */
TIGON_SHARED double tigon_logit_slope(const tigon_logit_map *m, double u) {
  if (!(m->cap > 0)) return 1;
  const double a = fabs(u * (double)tigon_logit_scale(m) / (double)m->cap), e = a > 350 ? 0 : exp(-2 * a);
  return 4 * e / ((1 + e) * (1 + e));
}

#endif
