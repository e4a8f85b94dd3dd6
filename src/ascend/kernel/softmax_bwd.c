/* softmax backward: dx = scale * y * (dy - sum(dy * y)). */
#include "ascend/kernel/ordered.h"
#include "ascend/kernel/softmax.h"

AICORE_KERNEL(softmax_bwd, reduce_arguments) {
  reduction s = reduce_open(ub, a, 1);
  while (reduce_next_task(&s))
    while (reduce_next_rows(&s)) {
      while (reduce_next_sums(&s)) {
        mul(s.work, s.value[0], s.value[1], s.n);
        row_sums(reduce_chunk_sum(&s, 0), s.work, s.t);
      }
      while (reduce_next_out(&s)) {
        by_rows(ROW_SUB, s.result, s.value[0], s.sums, s.work, s.t);
        mul(s.result, s.result, s.value[1], s.n);
        mul_scalar(s.result, s.result, a->number, s.n);
      }
    }
  reduce_close(&s);
}
