/* What kernels of losses agree on with their launchers. */
#ifndef TIGON_OPENCL_KERNEL_LOSS_H
#define TIGON_OPENCL_KERNEL_LOSS_H

#include "shared.h"
#include "wide.h"

/* Which labels count: all but ignore_index, and with a limit those of [0, limit). */
typedef struct label_rule {
  int64_t limit, ignore_index; /* limit 0: none */
  int32_t dtype, has_ignore;
} label_rule;

/* A logit z of an x: z = x * times, or with a cap cap * tanh(x * argument) * times. */
typedef struct logit_map {
  float cap, times; /* cap 0: none */
  pair argument;
  float slack, unused; /* z of x + slack is at most 16 larger than that of x */
} logit_map;

enum { TOTAL_ITEMS = 256 /* one group, which adds up what all rows have */ };

typedef struct totals_numbers {
  int64_t rows;
  label_rule rule;
  int32_t counts, reduces, mean, unused; /* counts: to `inverse`; reduces: to loss and correct */
} totals_numbers;

#endif
