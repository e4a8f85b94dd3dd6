/* sparsemax on Ascend: the launches of a call. */
#include "ascend/ascend.h"

void sparsemax_fwd(ub_arena *ub, const void *arguments);
void sparsemax_bwd(ub_arena *ub, const void *arguments);

tigon_status ascend_sparsemax_fwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  tigon_plan plan;
  const tigon_status status = ascend_plan_rows(queue, "sparsemax", "fwd", p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  reduce_arguments a = ascend_reduce(&plan, &p->space, p->dtype, &p->x, &p->dy, &p->y);
  return ascend_launch_parts(queue, "sparsemax_fwd", sparsemax_fwd, &a, &plan, 2);
}

tigon_status ascend_sparsemax_bwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  tigon_plan plan;
  const tigon_status status = ascend_plan_rows(queue, "sparsemax", "bwd", p->dtype, p->space.rows, p->cols, &plan);
  if (status != TIGON_OK) return status;
  reduce_arguments a = ascend_reduce(&plan, &p->space, p->dtype, &p->dy, &p->y, &p->dx);
  return ascend_launch_parts(queue, "sparsemax_bwd", sparsemax_bwd, &a, &plan, 2);
}
