/* layer_norm on Ascend. */
#include "ascend/kernel/layer_norm.h"

#include "ascend/ascend.h"
#include "ascend/kernel/moments.h"

tigon_status ascend_layer_norm_fwd(tigon_queue *queue, const tigon_layer_norm_fwd_problem *p, const tigon_plan *plan) {
  const int64_t count = plan->splits > 1 ? plan->rows * plan->splits * MOMENT_WORDS : 0;
  float *partials = count ? ascend_scratch(queue, count) : NULL;
  if (count && !partials) return TIGON_ERROR_DEVICE;
  layer_norm_fwd_arguments a = {.w = ascend_walk(plan),
                                .space = ascend_space(&p->space),
                                .x = ascend_rows(&p->x),
                                .y = ascend_rows(&p->y),
                                .weight = (gm_ptr)p->w,
                                .bias = (gm_ptr)p->b,
                                .mean = (gm_ptr)p->mean,
                                .rstd = (gm_ptr)p->rstd,
                                .partials = (gm_ptr)partials,
                                .dtype = p->dtype,
                                .w_dtype = p->w_dtype,
                                .b_dtype = p->b_dtype,
                                .eps = p->eps};
  const int64_t parts[] = {PART_SUMS, PART_ROWS}, whole[] = {PART_SUMS | PART_ROWS};
  for (int i = 0; i < (count ? 2 : 1); ++i) {
    a.parts = count ? parts[i] : whole[i];
    ascend_uses_rows(queue, "x", &p->space, &p->x, p->cols, p->dtype, SIM_READS);
    ascend_uses_rows(queue, "y", &p->space, &p->y, p->cols, p->dtype, SIM_WRITES);
    ascend_uses(queue, "w", p->w, p->cols, p->w_dtype, SIM_READS | SIM_SHARED);
    ascend_uses(queue, "b", p->b, p->cols, p->b_dtype, SIM_READS | SIM_SHARED);
    ascend_uses(queue, "mean", p->mean, p->space.rows, TIGON_F32, SIM_WRITES);
    ascend_uses(queue, "rstd", p->rstd, p->space.rows, TIGON_F32, SIM_WRITES);
    ascend_uses(queue, "partials", partials, count, TIGON_F32, SIM_READS | SIM_WRITES | SIM_SHARED);
    const tigon_status status = ascend_launch(queue, "layer_norm_fwd", layer_norm_fwd, &a, plan->grid);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}
