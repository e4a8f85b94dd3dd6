#include "opencl/kernel/softmax.h"

#include "opencl/opencl.h"
#include "opencl/tables.h"

tigon_status tigon_opencl_softmax_fwd(tigon_queue *queue, const tigon_softmax_fwd_problem *p) {
  static const opencl_kernel kernel = {"softmax", "softmax_fwd"};
  const softmax_numbers k = {.space = p->space,
                             .cols = p->cols,
                             .tokens = p->tokens,
                             .in = {opencl_pitch(&p->x), opencl_pitch(&p->mask)},
                             .out = opencl_pitch(&p->y),
                             .mask_dtype = (int32_t)p->mask_dtype,
                             .causal = p->causal,
                             .scale = p->scale};
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->x.data, p->mask.data, p->y.data), &k, sizeof k);
}

tigon_status tigon_opencl_softmax_bwd(tigon_queue *queue, const tigon_softmax_bwd_problem *p) {
  static const opencl_kernel kernel = {"softmax", "softmax_bwd"};
  const softmax_numbers k = {.space = p->space,
                             .cols = p->cols,
                             .in = {opencl_pitch(&p->dy), opencl_pitch(&p->y)},
                             .out = opencl_pitch(&p->dx),
                             .scale = p->scale};
  return opencl_launch(queue, &kernel, p->dtype, opencl_row_shape(queue, p->space.rows),
                       OPENCL_MEMORY(p->dy.data, p->y.data, p->dx.data), &k, sizeof k);
}
