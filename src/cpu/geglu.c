#include "cpu/gate.h"

TIGON_INLINE void fwd_box(tigon_dtype dtype, const fwd *f, const tigon_plan_box *box) {
  if (f->p.approx == TIGON_GELU_ERF)
    fwd_plain(dtype, GELU_ERF, f, box);
  else
    fwd_plain(dtype, GELU_TANH, f, box);
}

static void fwd_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  const tigon_plan_box box = piece_at(&f->pieces, f->p.space.rows, f->p.cols, index);
  TIGON_FOR_DTYPE(f->p.dtype, fwd_box, f, &box);
}

tigon_status TIGON_CPU(geglu_fwd)(tigon_queue *queue, const tigon_geglu_fwd_problem *p) {
  return fwd_run(queue, p, 3, fwd_task);
}

TIGON_INLINE void bwd_box(tigon_dtype dtype, const bwd *f, const tigon_plan_box *box) {
  const gate tanh = {.act = GELU_TANH, .plain = true}, erf = {.act = GELU_ERF, .plain = true};
  if (f->p.approx == TIGON_GELU_ERF)
    bwd_rows(dtype, f, box, &erf);
  else
    bwd_rows(dtype, f, box, &tanh);
}

static void bwd_task(const void *argument, int64_t index) {
  const bwd *f = argument;
  const tigon_plan_box box = piece_at(&f->pieces, f->p.space.rows, f->p.cols, index);
  TIGON_FOR_DTYPE(f->p.dtype, bwd_box, f, &box);
}

tigon_status TIGON_CPU(geglu_bwd)(tigon_queue *queue, const tigon_geglu_bwd_problem *p) {
  return bwd_run(queue, p, bwd_task);
}
