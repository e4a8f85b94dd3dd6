#include "cpu/gate.h"

static gate gate_of(float mult, float down, float clamp) {
  return (gate){SILU, mult == 1 && down == 1 && clamp == 0, mult, down, clamp};
}

TIGON_INLINE void fwd_box(tigon_dtype dtype, const fwd *f, const tigon_plan_box *box, const gate *k) {
  const gate any = {SILU, false, k->gate, k->down, k->clamp};
  if (k->plain)
    fwd_plain(dtype, SILU, f, box);
  else
    fwd_rows(dtype, f, box, &any, f->stream);
}

static void fwd_task(const void *argument, int64_t index) {
  const fwd *f = argument;
  const gate k = gate_of(f->p.gate_mult, f->p.down_mult, f->p.clamp);
  const tigon_plan_box box = piece_at(&f->pieces, f->p.space.rows, f->p.cols, index);
  TIGON_FOR_DTYPE(f->p.dtype, fwd_box, f, &box, &k);
}

tigon_status TIGON_CPU(swiglu_fwd)(tigon_queue *queue, const tigon_swiglu_fwd_problem *p) {
  return fwd_run(queue, p, 3, fwd_task);
}

TIGON_INLINE void bwd_box(tigon_dtype dtype, const bwd *f, const tigon_plan_box *box, const gate *k) {
  const gate plain = {.act = SILU, .plain = true}, any = {SILU, false, k->gate, k->down, k->clamp};
  if (k->plain)
    bwd_rows(dtype, f, box, &plain);
  else
    bwd_rows(dtype, f, box, &any);
}

static void bwd_task(const void *argument, int64_t index) {
  const bwd *f = argument;
  const gate k = gate_of(f->p.gate_mult, f->p.down_mult, f->p.clamp);
  const tigon_plan_box box = piece_at(&f->pieces, f->p.space.rows, f->p.cols, index);
  TIGON_FOR_DTYPE(f->p.dtype, bwd_box, f, &box, &k);
}

tigon_status TIGON_CPU(swiglu_bwd)(tigon_queue *queue, const tigon_swiglu_bwd_problem *p) {
  return bwd_run(queue, p, bwd_task);
}
