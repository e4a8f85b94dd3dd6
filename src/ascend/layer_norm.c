/* layer_norm and group_norm forward on Ascend: the launches of a call. */
#include "ascend/kernel/layer_norm.h"

#include "ascend/ascend.h"
#include "ascend/groups.h"
#include "ascend/kernel/moments.h"

static tigon_status forward(tigon_queue *queue, const tigon_norm_fwd_problem *p, const tigon_plan_request *call,
                            const ascend_groups *g) {
  tigon_plan plan;
  const tigon_status status = ascend_plan(queue, call, &plan);
  if (status != TIGON_OK) return status;
  layer_norm_fwd_arguments a = {.w = ascend_walk(&plan),
                                .space = ascend_space(&p->space),
                                .x = ascend_rows(&p->x),
                                .y = ascend_rows(&p->y),
                                .groups = g->kernel,
                                .weight = (gm_ptr)p->w,
                                .bias = (gm_ptr)p->b,
                                .mean = (gm_ptr)p->mean,
                                .rstd = (gm_ptr)p->rstd,
                                .dtype = p->dtype,
                                .w_dtype = p->w_dtype,
                                .b_dtype = p->b_dtype,
                                .eps = p->eps};
  gm_rows *const rows[] = {&a.x, &a.y};
  ascend_groups_apply(g, &a.w, &a.space, rows, 2);
  return ascend_launch_parts(queue, "layer_norm_fwd", layer_norm_fwd, &a, &plan, MOMENT_WORDS);
}

tigon_status ascend_layer_norm_fwd(tigon_queue *queue, const tigon_layer_norm_fwd_problem *p) {
  const ascend_groups g = ascend_no_groups(p->space.rows, p->cols);
  const tigon_plan_request call = {
      .op = "layer_norm", .entry = "fwd", .dtype = p->dtype, .rows = p->space.rows, .cols = p->cols};
  return forward(queue, p, &call, &g);
}

tigon_status ascend_group_norm_fwd(tigon_queue *queue, const tigon_group_norm_fwd_problem *p) {
  const tigon_planes planes[] = {p->x, p->y};
  const ascend_groups g = ascend_groups_of(p->batch, p->groups, p->channels, p->run, planes, 2);
  const tigon_norm_fwd_problem rows = {.space = ascend_group_space(&g),
                                       .cols = p->channels * p->run,
                                       .dtype = p->dtype,
                                       .w_dtype = p->w_dtype,
                                       .b_dtype = p->b_dtype,
                                       .x = ascend_group_rows(&p->x, p->channels),
                                       .y = ascend_group_rows(&p->y, p->channels),
                                       .w = p->w,
                                       .b = p->b,
                                       .mean = p->mean,
                                       .rstd = p->rstd,
                                       .eps = p->eps};
  const tigon_plan_request call = {.op = "group_norm",
                                   .entry = "fwd",
                                   .dtype = p->dtype,
                                   .rows = rows.space.rows,
                                   .cols = rows.cols,
                                   .groups = p->groups,
                                   .run = p->run};
  return forward(queue, &rows, &call, &g);
}
