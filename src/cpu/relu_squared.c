#include "cpu/gate.h"

static void fwd_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  const tigon_plan_box box = piece_at(&f->pieces, f->p.space.rows, f->p.cols, index);
  TIGON_FOR_DTYPE(f->p.dtype, fwd_plain, RELU_SQUARED, f, &box);
}

tigon_status TIGON_CPU(relu_squared_fwd)(tigon_queue *queue, const tigon_relu_squared_fwd_problem *p) {
  const tigon_gate_fwd_problem g = {
      .space = p->space, .cols = p->cols, .dtype = p->dtype, .a = p->x, .b = p->x, .c = p->y};
  return fwd_run(queue, &g, 2, fwd_task);
}

static void bwd_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  const tigon_plan_box box = piece_at(&f->pieces, f->p.space.rows, f->p.cols, index);
  TIGON_FOR_DTYPE(f->p.dtype, fwd_plain, RELU_TWICE, f, &box);
}

tigon_status TIGON_CPU(relu_squared_bwd)(tigon_queue *queue, const tigon_relu_squared_bwd_problem *p) {
  const tigon_gate_fwd_problem g = {
      .space = p->space, .cols = p->cols, .dtype = p->dtype, .a = p->x, .b = p->dy, .c = p->dx};
  return fwd_run(queue, &g, 3, bwd_task);
}
