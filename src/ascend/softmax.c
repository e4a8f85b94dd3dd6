/* softmax on Ascend: backward so far. */
#include "ascend/kernel/softmax.h"

#include "ascend/ascend.h"

tigon_status ascend_softmax_bwd(tigon_queue *queue, const tigon_softmax_bwd_problem *p, const tigon_plan *plan) {
  const int64_t count = plan->splits > 1 ? plan->rows * plan->splits : 0;
  float *partials = count ? ascend_scratch(queue, count) : NULL;
  if (count && !partials) return TIGON_ERROR_DEVICE;
  softmax_bwd_arguments a = {.w = ascend_walk(plan),
                             .space = ascend_space(&p->space),
                             .dy = ascend_rows(&p->dy),
                             .y = ascend_rows(&p->y),
                             .dx = ascend_rows(&p->dx),
                             .partials = (gm_ptr)partials,
                             .dtype = p->dtype,
                             .scale = p->scale};
  const int64_t parts[] = {PART_SUMS, PART_ROWS}, whole[] = {PART_SUMS | PART_ROWS};
  for (int i = 0; i < (count ? 2 : 1); ++i) {
    a.parts = count ? parts[i] : whole[i];
    ascend_uses_rows(queue, "dy", &p->space, &p->dy, p->cols, p->dtype, SIM_READS);
    ascend_uses_rows(queue, "y", &p->space, &p->y, p->cols, p->dtype, SIM_READS);
    ascend_uses_rows(queue, "dx", &p->space, &p->dx, p->cols, p->dtype, SIM_WRITES);
    ascend_uses(queue, "partials", partials, count, TIGON_F32, SIM_READS | SIM_WRITES | SIM_SHARED);
    const tigon_status status = ascend_launch(queue, "softmax_bwd", softmax_bwd, &a, plan->grid);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}
