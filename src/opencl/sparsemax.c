#include "opencl/kernel/softmax.h"
#include "opencl/opencl.h"
#include "opencl/tables.h"

tigon_status tigon_opencl_sparsemax_fwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  static const opencl_kernel kernel = {"sparsemax", "sparsemax_fwd"};
  const softmax_numbers k = {
      .space = p->space, .cols = p->cols, .in = {opencl_pitch(&p->x)}, .out = opencl_pitch(&p->y)};
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->x.data, p->y.data), &k, sizeof k);
}

tigon_status tigon_opencl_sparsemax_bwd(tigon_queue *queue, const tigon_sparsemax_problem *p) {
  static const opencl_kernel kernel = {"sparsemax", "sparsemax_bwd"};
  const softmax_numbers k = {.space = p->space,
                             .cols = p->cols,
                             .in = {opencl_pitch(&p->dy), opencl_pitch(&p->y)},
                             .out = opencl_pitch(&p->dx)};
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->dy.data, p->y.data, p->dx.data), &k, sizeof k);
}
