#ifndef TIGON_OPENCL_KERNEL_ADAMW_H
#define TIGON_OPENCL_KERNEL_ADAMW_H

#include "wide.h"
#include "shared.h"

enum {
  ADAMW_EACH = 4,      /* vectors of a work-item */
  ADAMW_PARTIALS = 128 /* sums of squares */
};

typedef struct adamw_numbers {
  int64_t count;
  float beta1, beta2, rest1, rest2, eps, decay;
  float rate, root; /* lr / correction1, 1 / sqrt(correction2) */
  int32_t grad_dtype, unused;
} adamw_numbers;

/* sum * 2^power, the power being even. */
typedef struct adamw_partial {
  pair sum;
  int32_t power, unused;
} adamw_partial;

typedef struct adamw_clip_numbers {
  int64_t count;
  int32_t dtype, first; /* first: the sums begin with this launch */
  float max_norm;
  int32_t unused;
} adamw_clip_numbers;

#endif
