/* embedding on Ascend. */
#include "ascend/kernel/embedding.h"

#include "ascend/ascend.h"

tigon_status ascend_embedding_fwd(tigon_queue *queue, const tigon_embedding_fwd_problem *p) {
  const tigon_plan *plan = queue->plan;
  float *flags = p->error_flag ? ascend_scratch(queue, plan->grid) : NULL;
  if (p->error_flag && !flags) return TIGON_ERROR_DEVICE;
  const embedding_fwd_arguments a = {.w = ascend_walk(plan),
                                     .space = ascend_space(&p->space),
                                     .y = ascend_rows(&p->y),
                                     .table = (gm_ptr)p->table,
                                     .idx = (gm_ptr)p->idx,
                                     .flags = (gm_ptr)flags,
                                     .vocab = p->vocab,
                                     .table_pitch = p->table_pitch,
                                     .dtype = p->dtype,
                                     .idx_dtype = p->idx_dtype};
  const int64_t table = p->vocab > 0 ? (p->vocab - 1) * p->table_pitch + p->cols : 0;
  ascend_uses(queue, "table", p->table, table, p->dtype, SIM_READS);
  ascend_uses(queue, "idx", p->idx, p->space.rows, p->idx_dtype, SIM_READS);
  ascend_uses_rows(queue, "y", &p->space, &p->y, p->cols, p->dtype, SIM_WRITES);
  ascend_uses(queue, "flags", flags, plan->grid, TIGON_F32, SIM_WRITES);
  const tigon_status status = ascend_launch(queue, "embedding_fwd", embedding_fwd, &a, plan->grid);
  if (status != TIGON_OK || !flags) return status;
  const error_flag_arguments flag = {(gm_ptr)flags, (gm_ptr)p->error_flag, plan->grid};
  ascend_uses(queue, "flags", flags, plan->grid, TIGON_F32, SIM_READS);
  ascend_uses(queue, "error", p->error_flag, 1, TIGON_I32, SIM_WRITES);
  return ascend_launch(queue, "error_flag", error_flag, &flag, 1);
}

tigon_status ascend_embedding_bwd(tigon_queue *queue, const tigon_embedding_bwd_problem *p) {
  const tigon_plan *plan = queue->plan;
  if (p->space.rows > INT32_MAX) {
    queue->reason = "embedding_bwd has more than 2^31 - 1 indices, which positions of 32 bits cannot tell apart";
    return TIGON_ERROR_DEVICE;
  }
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
                                     .tasks = plan->row_tasks,
                                     .listed = ascend_of(queue)->soc->device.listed,
                                     .panel = plan->cols_per_tile,
                                     .together = plan->rows_per_tile};
  ascend_uses_rows(queue, "dy", &p->space, &p->dy, p->cols, p->dtype, SIM_READS);
  ascend_uses(queue, "idx", p->idx, p->space.rows, p->idx_dtype, SIM_READS | SIM_SHARED);
  ascend_uses(queue, "dtable", p->dtable, p->vocab * p->cols, p->dtable_dtype, SIM_READS | SIM_WRITES);
  ascend_uses(queue, "error", p->error_flag, 1, TIGON_I32, SIM_WRITES);
  return ascend_launch(queue, "embedding_bwd", embedding_bwd, &a, plan->grid);
}
