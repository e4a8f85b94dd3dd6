#include "core/context.h"
#include "opencl/column_sum.h"
#include "opencl/kernel/poly_norm.h"
#include "opencl/tables.h"

_Static_assert((int)POLY == (int)TIGON_POLY, "the kernel's powers");

static poly_numbers numbers_of(const tigon_poly_norm_problem *p) {
  return (poly_numbers){.space = p->space,
                        .cols = p->cols,
                        .dy = opencl_pitch(&p->dy),
                        .x = opencl_pitch(&p->x),
                        .out = opencl_pitch(&p->out),
                        .w_dtype = (int32_t)p->w.dtype,
                        .b_dtype = (int32_t)p->b.dtype,
                        .eps = p->eps};
}

tigon_status tigon_opencl_poly_norm_fwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  static const opencl_kernel kernel = {"poly_norm", "poly_norm_fwd"};
  const poly_numbers k = numbers_of(p);
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->x.data, p->w.data, p->b.data, p->out.data, p->rstd), &k, sizeof k);
}

int64_t tigon_opencl_poly_norm_bwd_bytes(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  return tigon_slab_bytes(opencl_slabs(queue, p->space.rows), 1, POLY_SUMS);
}

tigon_status tigon_opencl_poly_norm_bwd(tigon_queue *queue, const tigon_poly_norm_problem *p) {
  static const opencl_kernel kernel = {"poly_norm", "poly_norm_bwd"};
  const poly_numbers k = numbers_of(p);
  const bool wanted = (p->dw.data || p->db.data) && p->space.rows > 0;
  const int64_t slabs = wanted ? opencl_slabs(queue, p->space.rows) : 0;
  const float *words = wanted ? p->sums : NULL;
  opencl_shape shape = opencl_row_shape(queue, wanted ? slabs : p->space.rows);
  shape.slabs = slabs;
  TIGON_TRY(opencl_launch(queue, &kernel, p->dtype, shape,
                          OPENCL_MEMORY(p->dy.data, p->x.data, p->w.data, p->rstd, p->out.data, words), &k, sizeof k));
  opencl_column_sum sum = {
      .slabs = words, .count = slabs, .step = POLY_SUMS, .cols = POLY, .to = p->dw, .accumulate = p->accumulate};
  TIGON_TRY(opencl_sum_columns(queue, &sum));
  sum.slabs = words ? words + POLY : NULL, sum.cols = 1, sum.to = p->db;
  return opencl_sum_columns(queue, &sum);
}
