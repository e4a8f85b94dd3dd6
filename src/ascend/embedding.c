/* embedding on Ascend. */
#include "ascend/kernel/embedding.h"

#include "ascend/ascend.h"

tigon_status ascend_embedding_fwd(tigon_queue *queue, const tigon_embedding_fwd_problem *p) {
  tigon_plan plan;
  tigon_status status = ascend_plan_rows(queue, "embedding", "fwd", p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  float *flags = p->error_flag ? ascend_scratch(queue, plan.grid) : NULL;
  if (p->error_flag && !flags) return TIGON_ERROR_DEVICE;
  const embedding_fwd_arguments a = {.w = ascend_walk(&plan),
                                     .space = ascend_space(&p->space),
                                     .y = ascend_rows(&p->y),
                                     .table = (gm_ptr)p->table,
                                     .idx = (gm_ptr)p->idx,
                                     .flags = (gm_ptr)flags,
                                     .vocab = p->vocab,
                                     .table_pitch = p->table_pitch,
                                     .dtype = p->dtype,
                                     .idx_dtype = p->idx_dtype};
  status = ascend_launch(queue, "embedding_fwd", embedding_fwd, &a, plan.grid);
  if (status != TIGON_OK || !flags) return status;
  const error_flag_arguments flag = {(gm_ptr)flags, (gm_ptr)p->error_flag, plan.grid};
  return ascend_launch(queue, "error_flag", error_flag, &flag, 1);
}

tigon_status ascend_embedding_bwd(tigon_queue *queue, const tigon_embedding_bwd_problem *p) {
  if (p->space.rows > INT32_MAX) {
    queue->reason = "embedding_bwd has more than 2^31 - 1 indices, which positions of 32 bits cannot tell apart";
    return TIGON_ERROR_DEVICE;
  }
  tigon_plan plan;
  const tigon_plan_request call = {.op = "embedding",
                                   .entry = "bwd",
                                   .dtype = p->dtype,
                                   .rows = p->space.rows,
                                   .cols = p->cols,
                                   .out_rows = p->vocab,
                                   .words = {.given = 1, .in = p->idx_dtype == TIGON_I64 ? 2 : 1}};
  const tigon_status status = ascend_plan(queue, &call, &plan);
  if (status != TIGON_OK) return status;
  const embedding_bwd_arguments a = {.space = ascend_space(&p->space),
                                     .dy = ascend_rows(&p->dy),
                                     .idx = (gm_ptr)p->idx,
                                     .dtable = p->dtable,
                                     .error = (gm_ptr)p->error_flag,
                                     .positions = p->space.rows,
                                     .cols = p->cols,
                                     .vocab = p->vocab,
                                     .padding_idx = p->padding_idx,
                                     .dtype = p->dtype,
                                     .idx_dtype = p->idx_dtype,
                                     .dtable_dtype = p->dtable_dtype,
                                     .accumulate = p->accumulate,
                                     .tasks = plan.row_tasks,
                                     .listed = ascend_of(queue)->soc->device.listed,
                                     .panel = plan.cols_per_tile,
                                     .together = plan.rows_per_tile};
  ascend_shares(queue, "idx", p->idx, p->space.rows, p->idx_dtype);
  return ascend_launch(queue, "embedding_bwd", embedding_bwd, &a, plan.grid);
}
