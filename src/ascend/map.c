/* Elementwise operators on Ascend. */
#include "ascend/ascend.h"
#include "ascend/kernel/pointwise.h"

static tigon_status launch(tigon_queue *queue, const tigon_map_problem *p, const char *op, const char *entry,
                           const char *name, tigon_sim_kernel *kernel) {
  tigon_plan plan;
  const tigon_status status = ascend_plan_rows(queue, op, entry, p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  pointwise_arguments a = {.w = ascend_walk(&plan),
                           .space = ascend_space(&p->space),
                           .dtype = p->dtype,
                           .approx = p->numbers.approx,
                           .gate = p->numbers.gate_mult,
                           .down = p->numbers.down_mult,
                           .clamp = p->numbers.clamp,
                           .up_offset = p->numbers.up_offset,
                           .factor = (gm_ptr)p->numbers.factor};
  for (int i = 0; i < p->inputs; ++i) a.in[i] = ascend_rows(&p->in[i]);
  for (int i = 0; i < p->outputs; ++i) a.out[i] = ascend_rows(&p->out[i]);
  return ascend_launch(queue, name, kernel, &a, plan.grid);
}

#define MAP(op, entry)                                                                 \
  tigon_status ascend_##op##_##entry(tigon_queue *queue, const tigon_map_problem *p) { \
    return launch(queue, p, #op, #entry, #op "_" #entry, op##_##entry);                \
  }
MAP(swiglu, fwd)
MAP(swiglu, bwd)
MAP(geglu, fwd)
MAP(geglu, bwd)
MAP(relu_squared, fwd)
MAP(relu_squared, bwd)
MAP(scale, fwd)
