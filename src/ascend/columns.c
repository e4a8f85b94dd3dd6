#include "ascend/columns.h"

#include "ascend/kernel/columns.h"

/* The sums of the vectors from slabs, and that of the number from a word for each task. */
static tigon_status join(tigon_queue *queue, const tigon_columns_problem *p, int64_t slabs, int64_t tasks,
                         const float *words) {
  for (int i = 0; i < 3; ++i) {
    const bool number = i == 2;
    const tigon_vector to = number ? p->dnumber : p->dvector[i];
    const int64_t cols = number ? 1 : p->cols;
    if (!to.data || cols == 0) continue;
    const float *from = number ? words : p->slabs + i * cols;
    const tigon_status status = ascend_column_sums(queue, slabs ? from : NULL, number ? tasks : slabs,
                                                   number ? 1 : 2 * cols, cols, to.data, to.dtype, p->accumulate);
    if (status != TIGON_OK) return status;
  }
  return TIGON_OK;
}

tigon_status ascend_columns(tigon_queue *queue, const tigon_columns_problem *p, const char *op, const char *entry,
                            const char *name, tigon_sim_kernel *kernel) {
  tigon_plan plan;
  const tigon_status planned = ascend_plan_rows(queue, op, entry, p->dtype, p->space.rows, p->cols, &plan);
  if (planned != TIGON_OK) return planned;
  if (plan.rows == 0 || plan.cols == 0) return join(queue, p, 0, 0, NULL);
  float *slabs = tigon_columns_sums(p) ? p->slabs : NULL, *words = slabs ? slabs + 2 * plan.slabs * plan.cols : NULL;
  columns_arguments a = {.w = ascend_walk(&plan),
                         .space = ascend_space(&p->space),
                         .out = ascend_rows(&p->out),
                         .number = p->number.data,
                         .slabs = (gm_ptr)slabs,
                         .words = (gm_ptr)words,
                         .number_dtype = p->number.dtype,
                         .dtype = p->dtype};
  for (int i = 0; i < 2; ++i) {
    a.in[i] = ascend_rows(&p->in[i]);
    a.vector[i] = p->vector[i].data;
    a.vector_dtype[i] = p->vector[i].dtype;
  }
  const tigon_status status = ascend_launch(queue, name, kernel, &a, plan.grid);
  return status == TIGON_OK ? join(queue, p, plan.slabs, plan.tasks, words) : status;
}

int64_t ascend_columns_bytes(tigon_queue *queue, const tigon_columns_problem *p, const char *op) {
  return ascend_plan_rows_workspace(queue, op, "bwd", p->dtype, p->space.rows, p->cols);
}

/* The slots of every operator of the family. */
#define COLUMNS(name)                                                                     \
  void name##_fwd(ub_arena *ub, const void *arguments);                                   \
  void name##_bwd(ub_arena *ub, const void *arguments);                                   \
  tigon_status ascend_##name##_fwd(tigon_queue *queue, const tigon_columns_problem *p) {  \
    return ascend_columns(queue, p, #name, "fwd", #name "_fwd", name##_fwd);              \
  }                                                                                       \
  tigon_status ascend_##name##_bwd(tigon_queue *queue, const tigon_columns_problem *p) {  \
    return ascend_columns(queue, p, #name, "bwd", #name "_bwd", name##_bwd);              \
  }                                                                                       \
  int64_t ascend_##name##_bwd_bytes(tigon_queue *queue, const tigon_columns_problem *p) { \
    return ascend_columns_bytes(queue, p, #name);                                         \
  }
COLUMNS(dyt)
