#include "opencl/column_sum.h"

#include "opencl/kernel/column_sum.h"

int64_t opencl_most_slabs(const tigon_queue *queue) {
  enum { SLABS = 8 /* for each core */ };
  return SLABS * opencl_of(queue)->desc.cores;
}

tigon_status opencl_sum_columns_of_rows(tigon_queue *queue, const opencl_column_sum *sum, const tigon_row_space *space,
                                        const tigon_rows *to) {
  static const opencl_kernel kernel = {"column_sum", "column_sum"};
  const opencl_device *d = opencl_of(queue);
  const column_sum_numbers k = {.space = *space,
                                .to = opencl_pitch(to),
                                .count = sum->count,
                                .step = sum->step,
                                .cols = sum->cols,
                                .dtype = (int32_t)sum->to.dtype,
                                .accumulate = sum->accumulate};
  const int64_t local = d->model == OPENCL_ITEMS ? 1 : d->group;
  const int64_t columns = d->lanes * (local < COLUMN_SUM_ITEMS ? local : COLUMN_SUM_ITEMS);
  const opencl_shape shape = {.global = {opencl_ceil_div(sum->cols, columns) * local, space->rows},
                              .local = {local, 1}};
  if (!to->data || space->rows == 0) return TIGON_OK;
  return opencl_launch(queue, &kernel, TIGON_F32, shape, OPENCL_MEMORY(sum->slabs, to->data), &k, sizeof k);
}

tigon_status opencl_sum_columns(tigon_queue *queue, const opencl_column_sum *sum) {
  return opencl_sum_columns_of_rows(queue, sum, &(tigon_row_space){1, 1, 1}, &(tigon_rows){.data = sum->to.data});
}
