/* relu_squared on Ascend. */
#include "ascend/kernel/relu_squared.h"

#include "ascend/ascend.h"

tigon_status ascend_relu_squared_fwd(tigon_queue *queue, const tigon_relu_squared_fwd_problem *p) {
  const tigon_plan *plan = queue->plan;
  const pointwise_arguments a = {.w = ascend_walk(plan),
                                 .space = ascend_space(&p->space),
                                 .in = {ascend_rows(&p->x)},
                                 .out = {ascend_rows(&p->y)},
                                 .dtype = p->dtype};
  ascend_uses_rows(queue, "x", &p->space, &p->x, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "y", &p->space, &p->y, p->cols, p->dtype, SIM_WRITES);
  return ascend_launch(queue, "relu_squared_fwd", relu_squared_fwd, &a, plan->grid);
}

tigon_status ascend_relu_squared_bwd(tigon_queue *queue, const tigon_relu_squared_bwd_problem *p) {
  const tigon_plan *plan = queue->plan;
  const pointwise_arguments a = {.w = ascend_walk(plan),
                                 .space = ascend_space(&p->space),
                                 .in = {ascend_rows(&p->x), ascend_rows(&p->dy)},
                                 .out = {ascend_rows(&p->dx)},
                                 .dtype = p->dtype};
  ascend_uses_rows(queue, "x", &p->space, &p->x, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "dy", &p->space, &p->dy, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "dx", &p->space, &p->dx, p->cols, p->dtype, SIM_WRITES);
  return ascend_launch(queue, "relu_squared_bwd", relu_squared_bwd, &a, plan->grid);
}
