#include "opencl/kernel/mhc.h"
#include "opencl/mhc.h"
#include "opencl/tables.h"

tigon_status opencl_mhc_mix(tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward) {
  static const opencl_kernel fwd = {"mhc_post_res", "mhc_post_res_fwd"}, bwd = {"mhc_post_res", "mhc_post_res_bwd"};
  const mhc_mix_numbers k = {.in_space = p->in_space,
                             .out_space = p->out_space,
                             .tokens = p->tokens,
                             .x = opencl_pitch(&p->x),
                             .dx = opencl_pitch(&p->dx),
                             .o = opencl_pitch(&p->o),
                             .f = opencl_pitch(&p->f),
                             .df = opencl_pitch(&p->df),
                             .in = p->in,
                             .out = p->out,
                             .cols = p->cols,
                             .rows = p->in_space.rows / p->in};
  const opencl_shape shape = opencl_row_shape(queue, k.rows);
  if (!backward)
    return opencl_launch(queue, &fwd, p->dtype, shape,
                         OPENCL_MEMORY(p->x.data, p->f.data, p->h_res.data, p->h_post.data, p->o.data), &k, sizeof k);
  return opencl_launch(queue, &bwd, p->dtype, shape,
                       OPENCL_MEMORY(p->o.data, p->x.data, p->f.data, p->h_res.data, p->h_post.data, p->dx.data,
                                     p->df.data, p->dh_res.data, p->dh_post.data),
                       &k, sizeof k);
}

tigon_status tigon_opencl_mhc_post_res_fwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return opencl_mhc_mix(queue, p, false);
}
tigon_status tigon_opencl_mhc_post_res_bwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return opencl_mhc_mix(queue, p, true);
}
