#include "core/context.h"
#include "opencl/column_sum.h"
#include "opencl/kernel/dyt.h"
#include "opencl/tables.h"

static dyt_numbers numbers_of(const tigon_columns_problem *p, const tigon_rows *dy, const tigon_rows *x) {
  return (dyt_numbers){.space = p->space,
                       .cols = p->cols,
                       .dy = opencl_pitch(dy),
                       .x = opencl_pitch(x),
                       .out = opencl_pitch(&p->out),
                       .alpha_dtype = (int32_t)p->number.dtype,
                       .gamma_dtype = (int32_t)p->vector[0].dtype,
                       .beta_dtype = (int32_t)p->vector[1].dtype};
}

tigon_status tigon_opencl_dyt_fwd(tigon_queue *queue, const tigon_dyt_fwd_problem *p) {
  static const opencl_kernel kernel = {"dyt", "dyt_fwd"};
  const dyt_numbers k = numbers_of(p, &p->in[1], &p->in[0]);
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->in[0].data, p->number.data, p->vector[0].data, p->vector[1].data, p->out.data),
                       &k, sizeof k);
}

/* Slabs, then a word of dalpha for each. */
int64_t tigon_opencl_dyt_bwd_bytes(tigon_queue *queue, const tigon_dyt_bwd_problem *p) {
  const int64_t slabs = opencl_slabs(queue, p->space.rows);
  return tigon_slab_bytes(slabs, 2, p->cols) + tigon_slab_bytes(slabs, 1, 1);
}

tigon_status tigon_opencl_dyt_bwd(tigon_queue *queue, const tigon_dyt_bwd_problem *p) {
  static const opencl_kernel kernel = {"dyt", "dyt_bwd"};
  const dyt_numbers k = numbers_of(p, &p->in[0], &p->in[1]);
  const bool wanted = tigon_columns_sums(p) && p->space.rows > 0;
  const int64_t slabs = wanted ? opencl_slabs(queue, p->space.rows) : 0;
  float *const vectors = wanted ? p->slabs : NULL;
  float *const words = wanted ? vectors + tigon_slab_bytes(slabs, 2, p->cols) / (int64_t)sizeof(float) : NULL;
  opencl_shape shape = opencl_row_shape(queue, wanted ? slabs : p->space.rows);
  shape.slabs = slabs;
  TIGON_TRY(opencl_launch(
      queue, &kernel, p->dtype, shape,
      OPENCL_MEMORY(p->in[0].data, p->in[1].data, p->number.data, p->vector[0].data, p->out.data, vectors, words), &k,
      sizeof k));
  for (int i = 0; i < 2; ++i) {
    const opencl_column_sum sum = {.slabs = vectors ? vectors + i * p->cols : NULL,
                                   .count = slabs,
                                   .step = 2 * p->cols,
                                   .cols = p->cols,
                                   .to = p->dvector[i],
                                   .accumulate = p->accumulate};
    TIGON_TRY(opencl_sum_columns(queue, &sum));
  }
  return opencl_sum_columns(
      queue, &(opencl_column_sum){
                 .slabs = words, .count = slabs, .step = 1, .cols = 1, .to = p->dnumber, .accumulate = p->accumulate});
}
