/* poly_norm on Ascend: the launches of a call. */
#include "ascend/ascend.h"

void poly_norm(ub_arena *ub, const void *arguments);

static tigon_status launch(tigon_queue *queue, const char *entry, const tigon_poly_norm_problem *p, tigon_plan *plan) {
  const tigon_status status = ascend_plan_rows(queue, "poly_norm", entry, p->dtype, p->space.rows, p->cols, plan);
  if (status != TIGON_OK || p->space.rows == 0) return status;
  reduce_arguments a = ascend_reduce(plan, &p->space, p->dtype, &p->x, &p->dy, &p->out);
  a.vector[0] = p->w.data, a.vector_dtype[0] = p->w.dtype;
  a.vector[1] = p->b.data, a.vector_dtype[1] = p->b.dtype;
  a.words = (gm_ptr)p->rstd;
  a.totals = p->sums;
  a.number = p->eps;
  return ascend_launch_parts(queue, "poly_norm", poly_norm, &a, plan, TIGON_POLY + 1);
}

tigon_status ascend_poly_norm_fwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  tigon_plan plan;
  return launch(queue, "fwd", p, &plan);
}

int64_t ascend_poly_norm_bwd_bytes(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  return ascend_plan_rows_workspace(queue, "poly_norm", "bwd", p->dtype, p->space.rows, p->cols);
}

tigon_status ascend_poly_norm_bwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  tigon_plan plan;
  tigon_status status = launch(queue, "bwd", p, &plan);
  const int64_t ranges = p->space.rows > 0 ? plan.row_tasks : 0;
  const tigon_vector to[] = {p->dw, p->db};
  for (int i = 0; i < 2 && status == TIGON_OK; ++i)
    if (to[i].data)
      status = ascend_column_sums(queue, (const float *)p->sums + i * TIGON_POLY, ranges, TIGON_POLY + 1,
                                  i ? 1 : TIGON_POLY, to[i].data, to[i].dtype, p->accumulate);
  return status;
}
