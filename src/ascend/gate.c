/* swiglu and geglu on Ascend. */
#include "ascend/kernel/gate.h"

#include "ascend/ascend.h"

static tigon_status forward(tigon_queue *queue, const tigon_gate_fwd_problem *p, const tigon_plan *plan, float gate,
                            float down, const char *name, tigon_sim_kernel *kernel) {
  const gate_arguments a = {.p = {.w = ascend_walk(plan),
                                  .space = ascend_space(&p->space),
                                  .in = {ascend_rows(&p->a), ascend_rows(&p->b)},
                                  .out = {ascend_rows(&p->c)},
                                  .dtype = p->dtype},
                            .approx = p->approx,
                            .gate = gate,
                            .down = down,
                            .clamp = p->clamp};
  ascend_uses_rows(queue, "a", &p->space, &p->a, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "b", &p->space, &p->b, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "c", &p->space, &p->c, p->cols, p->dtype, SIM_WRITES);
  return ascend_launch(queue, name, kernel, &a, plan->grid);
}

tigon_status ascend_swiglu_fwd(tigon_queue *queue, const tigon_gate_fwd_problem *p) {
  return forward(queue, p, queue->plan, p->gate_mult, p->down_mult, "swiglu_fwd", swiglu_fwd);
}
tigon_status ascend_geglu_fwd(tigon_queue *queue, const tigon_gate_fwd_problem *p) {
  return forward(queue, p, queue->plan, 1, 1, "geglu_fwd", geglu_fwd);
}

static tigon_status backward(tigon_queue *queue, const tigon_gate_bwd_problem *p, const tigon_plan *plan, float gate,
                             float down, const char *name, tigon_sim_kernel *kernel) {
  const gate_arguments a = {.p = {.w = ascend_walk(plan),
                                  .space = ascend_space(&p->space),
                                  .in = {ascend_rows(&p->dc), ascend_rows(&p->a), ascend_rows(&p->b)},
                                  .out = {ascend_rows(&p->da), ascend_rows(&p->db)},
                                  .dtype = p->dtype},
                            .approx = p->approx,
                            .gate = gate,
                            .down = down,
                            .clamp = p->clamp};
  ascend_uses_rows(queue, "dc", &p->space, &p->dc, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "a", &p->space, &p->a, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "b", &p->space, &p->b, p->cols, p->dtype, SIM_READS);
  ascend_uses_rows(queue, "da", &p->space, &p->da, p->cols, p->dtype, SIM_WRITES);
  ascend_uses_rows(queue, "db", &p->space, &p->db, p->cols, p->dtype, SIM_WRITES);
  return ascend_launch(queue, name, kernel, &a, plan->grid);
}

tigon_status ascend_swiglu_bwd(tigon_queue *queue, const tigon_gate_bwd_problem *p) {
  return backward(queue, p, queue->plan, p->gate_mult, p->down_mult, "swiglu_bwd", swiglu_bwd);
}
tigon_status ascend_geglu_bwd(tigon_queue *queue, const tigon_gate_bwd_problem *p) {
  return backward(queue, p, queue->plan, 1, 1, "geglu_bwd", geglu_bwd);
}
