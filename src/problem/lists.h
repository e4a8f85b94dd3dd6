/* Problems over lists of tensors. */
#ifndef TIGON_PROBLEM_LISTS_H
#define TIGON_PROBLEM_LISTS_H

#include <stdbool.h>
#include <tigon/tigon.h>

#include "core/shared.h"

typedef struct tigon_adamw_step_problem {
  const tigon_adamw_param *params; /* [count] */
  int64_t count;
  const float *clip_factor; /* may be NULL */
  double lr, beta1, beta2, eps;
  double correction1, correction2; /* 1 - beta^step */
} tigon_adamw_step_problem;

typedef struct tigon_adamw_clip_problem {
  const tigon_tensor *grads; /* [count] */
  int64_t count;
  double max_norm;
  float *norm, *factor;
  double *partials; /* [TIGON_ADAMW_PARTIALS] workspace */
} tigon_adamw_clip_problem;

/* Partial sums of the gradient norm, a fixed number so that the bits do not depend on the threads. */
enum { TIGON_ADAMW_PARTIALS = 256 };

#endif
