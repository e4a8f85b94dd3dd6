/* relu_squared: y = max(x, 0)^2; backward dx = 2 * max(x, 0) * dy. */
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/pointwise.h"

AICORE void square(pointwise *p) {
  at_least(p->result[0], p->value[0], 0, p->n);
  mul(p->result[0], p->result[0], p->result[0], p->n);
}

/* Makes the slope from dy and x. Twice max(x, 0) is exact, so the product is rounded once. */
AICORE void slope(pointwise *p) {
  at_least(p->value[1], p->value[1], 0, p->n);
  mul_scalar(p->value[1], p->value[1], 2, p->n);
  mul(p->result[0], p->value[1], p->value[0], p->n);
}

POINTWISE_KERNEL(relu_squared_fwd, 1, 1, 0, square)
POINTWISE_KERNEL(relu_squared_bwd, 2, 1, 0, slope)
