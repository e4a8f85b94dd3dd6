#include "cpu/norm_fwd.h"

static void fwd_task(const void *argument, int64_t index) {
  const tigon_rms_norm_fwd_problem *p = argument;
  const int64_t row_bytes = 4 * p->cols * (int64_t)tigon_dtype_size(p->dtype);
  int64_t begin, end;
  tigon_plan_range(p->space.rows, tigon_cpu_row_tasks(p->space.rows, row_bytes), index, &begin, &end);
  TIGON_FOR_DTYPE(p->dtype, norm_fwd_rows, NORM_ADD_RMS, p, begin, end, tigon_cpu_streams(p->space.rows * row_bytes));
}

tigon_status TIGON_CPU(fused_add_rms_norm_fwd)(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p,
                                               const tigon_plan *plan) {
  (void)plan;
  const int64_t row_bytes = 4 * p->cols * (int64_t)tigon_dtype_size(p->dtype);
  tigon_cpu_parallel(queue, tigon_cpu_row_tasks(p->space.rows, row_bytes), fwd_task, p);
  return TIGON_OK;
}
