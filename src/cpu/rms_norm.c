#include "cpu/column_sum.h"
#include "cpu/norm_bwd.h"
#include "cpu/norm_fwd.h"

static void fwd_task(const void *problem, int64_t index) { norm_fwd_task(NORM_RMS, problem, index); }

tigon_status TIGON_CPU(rms_norm_fwd)(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p, const tigon_plan *plan) {
  (void)plan;
  return norm_fwd_run(NORM_RMS, queue, p, fwd_task);
}

typedef struct bwd {
  const tigon_rms_norm_bwd_problem *p;
  int64_t slabs;
} bwd;

static void bwd_task(const void *argument, int64_t index) {
  const bwd *b = argument;
  const tigon_rms_norm_bwd_problem *p = b->p;
  int64_t begin, end;
  tigon_plan_range(p->space.rows, b->slabs, index, &begin, &end);
  float *slab = p->dw ? p->slabs + index * p->cols : NULL;
  const bool stream = tigon_cpu_streams(3 * p->space.rows * p->cols * (int64_t)tigon_dtype_size(p->dtype));
  TIGON_FOR_DTYPE(p->dtype, norm_bwd_rows, NORM_RMS, p, begin, end, end, slab, NULL, stream);
}

tigon_status TIGON_CPU(rms_norm_bwd)(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p, const tigon_plan *plan) {
  const bwd b = {p, plan->slabs};
  const column_sum dw = column_sum_of(p->slabs, b.slabs, 0, 1, p->cols, p->dw, p->dw_dtype, p->accumulate_dw);
  tigon_cpu_parallel(queue, b.slabs, bwd_task, &b);
  if (p->dw) tigon_cpu_parallel(queue, column_sum_tasks(p->cols), column_sum_list_task, &dw);
  return TIGON_OK;
}

tigon_status TIGON_CPU(fused_add_rms_norm_bwd)(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p,
                                               const tigon_plan *plan) {
  return TIGON_CPU(rms_norm_bwd)(queue, p, plan);
}
