/* scale: y = factor * x. */
#include "ascend/kernel/norm.h"
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/pointwise.h"

AICORE_KERNEL(scale_fwd, pointwise_arguments) {
  float factor;
  read_numbers(ub, 4, a->factor, TIGON_F32, 1, &factor);
  if (factor == 1 && a->in[0].data == a->out[0].data) return;
  pointwise p = pointwise_open(ub, a, 1, 1, 0);
  while (pointwise_next(&p)) {
    mul_scalar(p.result[0], p.value[0], factor, p.n);
    pointwise_end(&p);
  }
  pointwise_close(&p);
}
