#include "cuda/kernels.h"
#include "cuda/mhc.h"

tigon_status cuda_mhc_mix(tigon_queue *queue, const tigon_mhc_post_res_problem *p, bool backward) {
  static cuda_kernel kernels[2][2][3] = {
      {CUDA_KERNELS(mhc_post_res, mhc_post_res_fwd_any), CUDA_KERNELS(mhc_post_res, mhc_post_res_fwd_few)},
      {CUDA_KERNELS(mhc_post_res, mhc_post_res_bwd_any), CUDA_KERNELS(mhc_post_res, mhc_post_res_bwd_few)}};
  const int pack = 16 / (int)tigon_dtype_size(p->dtype);
  const bool few = p->in <= MHC_FEW && p->out <= MHC_FEW && p->cols % pack == 0 &&
                   mhc_streams_lie_even(&p->in_space, p->in) && mhc_streams_lie_even(&p->out_space, p->out) &&
                   cuda_wide_rows(&p->in_space, &p->x, p->dtype) && cuda_wide_rows(&p->in_space, &p->dx, p->dtype) &&
                   cuda_wide_rows(&p->out_space, &p->o, p->dtype) && cuda_wide_rows(&p->tokens, &p->f, p->dtype) &&
                   cuda_wide_rows(&p->tokens, &p->df, p->dtype);
  cuda_shape shape = {.blocks = p->in_space.rows / p->in, .threads = MHC_THREADS, .held = few ? "staged" : "walked"};
  int stages = MHC_RING; /* which only the kernels of few streams are told */
  if (few) {
    const tigon_device *device = &cuda_of(queue)->desc;
    const int stage = (int)(p->in + (p->f.data != NULL) + (backward ? p->out : 0)) * MHC_THREADS * 16;
    if (stages * stage > device->onchip_bytes) --stages;
    shape.shared_bytes = stages * stage;
    const int64_t fit = device->onchip_bytes / (shape.shared_bytes + 2048),
                  want = backward ? MHC_BWD_BLOCKS : MHC_FWD_BLOCKS;
    const int64_t most = device->cores * (fit < 1 ? 1 : fit < want ? fit : want);
    if (shape.blocks > most) shape.blocks = most;
  }
  return cuda_launch(queue, cuda_by_dtype(kernels[backward][few], p->dtype), shape, CUDA_ARGUMENTS((void *)p, &stages));
}

tigon_status tigon_cuda_mhc_post_res_fwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return cuda_mhc_mix(queue, p, false);
}

tigon_status tigon_cuda_mhc_post_res_bwd(tigon_queue *queue, const tigon_mhc_post_res_problem *p) {
  return cuda_mhc_mix(queue, p, true);
}
