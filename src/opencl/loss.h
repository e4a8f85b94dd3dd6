/* What launchers of losses have in common. */
#ifndef TIGON_OPENCL_LOSS_H
#define TIGON_OPENCL_LOSS_H

#include "opencl/kernel/loss.h"
#include "opencl/opencl.h"
#include "problem/loss.h"

/* What needs all rows of a loss; pointers that a part does not use may be NULL. */
typedef struct opencl_totals {
  bool counts, reduces, mean;
  int64_t rows;
  label_rule rule;
  const void *labels;                /* NULL: all count */
  const float *weight, *denominator; /* what `inverse` is made from; may be NULL */
  const float *token_loss;
  const int64_t *argmax; /* what `correct` counts; may be NULL */
  float *inverse, *loss;
  int64_t *correct;
  int32_t *error_flag;
} opencl_totals;
tigon_status opencl_sum_losses(tigon_queue *queue, const opencl_totals *t);

/* The sum of floats as a pair, which a kernel of this call reads at *to; until the next such call. */
tigon_status opencl_sum_floats(tigon_queue *queue, const float *values, int64_t count, const void **to);

/* z = x * inner * outer or, with a cap, cap * tanh(x * inner / cap) * outer. */
logit_map opencl_logit_map(float cap, double inner, double outer);

label_rule opencl_label_rule(const tigon_cross_entropy_problem *p);

/* Work-items that share `items` out, one by one. */
opencl_shape opencl_item_shape(const tigon_queue *queue, int64_t items);
/* One group of TOTAL_ITEMS. */
static inline opencl_shape opencl_total_shape(void) {
  return (opencl_shape){.global = {TOTAL_ITEMS}, .local = {TOTAL_ITEMS}};
}

#endif
