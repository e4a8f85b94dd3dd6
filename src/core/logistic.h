/* The logistic function of f32, and what goes with it. Every function takes any number, and a NaN stays one. */
#ifndef TIGON_CORE_LOGISTIC_H
#define TIGON_CORE_LOGISTIC_H

#ifndef __OPENCL_VERSION__
#include <math.h>
#endif

#include "core/shared.h"

/* log(1 + e^x) = -log s(-x), the logistic function s(x), and its slope. */
TIGON_SHARED float tigon_softplus(float x) { return fmaxf(x, 0) + log1pf(expf(-fabsf(x))); }
TIGON_SHARED float tigon_logistic(float x) {
  const float e = expf(-fabsf(x));
  return (x >= 0 ? 1 : e) / (1 + e);
}
TIGON_SHARED float tigon_logistic_slope(float x) { return tigon_logistic(x) * tigon_logistic(-x); }

#endif
