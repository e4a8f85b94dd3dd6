/* Kernels made wrong on purpose, by a slot that changes the problem before the true kernel sees it. */
#include <stddef.h>

#include "check/check.h"

/* The variant's own slots, saved by apply(). One check runs at a time. */
static tigon_kernels real;

static tigon_status drop_tail(tigon_queue *q, const tigon_rms_norm_fwd_problem *p, const tigon_plan *plan) {
  tigon_rms_norm_fwd_problem m = *p;
  m.cols -= m.cols > 1;
  return real.rms_norm_fwd.run(q, &m, plan);
}
static void apply_drop_tail(tigon_kernels *k) { real = *k, k->rms_norm_fwd.run = drop_tail; }

static tigon_status skip_eps(tigon_queue *q, const tigon_rms_norm_fwd_problem *p, const tigon_plan *plan) {
  tigon_rms_norm_fwd_problem m = *p;
  m.eps = 0;
  return real.rms_norm_fwd.run(q, &m, plan);
}
static void apply_skip_eps(tigon_kernels *k) { real = *k, k->rms_norm_fwd.run = skip_eps; }

static tigon_status drop_row(tigon_queue *q, const tigon_rms_norm_bwd_problem *p, const tigon_plan *plan) {
  tigon_rms_norm_bwd_problem m = *p;
  tigon_plan fewer = *plan;
  m.space.rows -= m.space.rows > 1;
  m.space.inner = m.space.rows;
  return real.rms_norm_bwd.run(q, &m, &fewer);
}
static void apply_drop_row(tigon_kernels *k) { real = *k, k->rms_norm_bwd.run = drop_row; }

static tigon_status overwrite_dw(tigon_queue *q, const tigon_rms_norm_bwd_problem *p, const tigon_plan *plan) {
  tigon_rms_norm_bwd_problem m = *p;
  m.accumulate_dw = false;
  return real.rms_norm_bwd.run(q, &m, plan);
}
static void apply_overwrite_dw(tigon_kernels *k) { real = *k, k->rms_norm_bwd.run = overwrite_dw; }

static tigon_status forget_offset(tigon_queue *q, const tigon_rms_norm_fwd_problem *p, const tigon_plan *plan) {
  tigon_rms_norm_fwd_problem m = *p;
  m.w_offset = 0;
  return real.fused_add_rms_norm_fwd.run(q, &m, plan);
}
static void apply_forget_offset(tigon_kernels *k) { real = *k, k->fused_add_rms_norm_fwd.run = forget_offset; }

static tigon_status forget_ds(tigon_queue *q, const tigon_rms_norm_bwd_problem *p, const tigon_plan *plan) {
  tigon_rms_norm_bwd_problem m = *p;
  m.ds.data = NULL;
  return real.fused_add_rms_norm_bwd.run(q, &m, plan);
}
static void apply_forget_ds(tigon_kernels *k) { real = *k, k->fused_add_rms_norm_bwd.run = forget_ds; }

static const check_mutant mutants[] = {
    {"rms_norm", "fwd", "drops the last column", apply_drop_tail},
    {"rms_norm", "fwd", "skips eps", apply_skip_eps},
    {"rms_norm", "bwd", "drops the last row", apply_drop_row},
    {"rms_norm", "bwd", "overwrites dw instead of adding", apply_overwrite_dw},
    {"fused_add_rms_norm", "fwd", "forgets w_offset", apply_forget_offset},
    {"fused_add_rms_norm", "bwd", "forgets ds", apply_forget_ds},
};

const check_mutant *check_mutant_at(int index) {
  return index >= 0 && index < (int)(sizeof mutants / sizeof *mutants) ? &mutants[index] : NULL;
}
