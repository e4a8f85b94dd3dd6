#include "cuda/kernels.h"
#include "cuda/mhc.h"

tigon_status cuda_mhc_mix(tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward) {
  static cuda_kernel kernels[2][2][3] = {
      {CUDA_KERNELS(mhc_post_res, mhc_post_res_fwd_any), CUDA_KERNELS(mhc_post_res, mhc_post_res_fwd_few)},
      {CUDA_KERNELS(mhc_post_res, mhc_post_res_bwd_any), CUDA_KERNELS(mhc_post_res, mhc_post_res_bwd_few)}};
  const int pack = 16 / (int)tigon_dtype_size(p->dtype);
  const bool few = p->in <= MHC_FEW && p->out <= MHC_FEW && p->cols % pack == 0 &&
                   cuda_wide_rows(&p->in_space, &p->x, p->dtype) && cuda_wide_rows(&p->in_space, &p->dx, p->dtype) &&
                   cuda_wide_rows(&p->out_space, &p->o, p->dtype) && cuda_wide_rows(&p->tokens, &p->f, p->dtype) &&
                   cuda_wide_rows(&p->tokens, &p->df, p->dtype);
  const cuda_shape shape = {
      .blocks = p->in_space.rows / p->in, .threads = MHC_THREADS, .held = few ? "held" : "walked"};
  return cuda_launch(queue, cuda_by_dtype(kernels[backward][few], p->dtype), shape, CUDA_ARGUMENTS((void *)p));
}

tigon_status tigon_cuda_mhc_post_res_fwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return cuda_mhc_mix(queue, p, false);
}

tigon_status tigon_cuda_mhc_post_res_bwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return cuda_mhc_mix(queue, p, true);
}
