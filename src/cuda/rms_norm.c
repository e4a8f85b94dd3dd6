#include "cuda/kernels.h"
#include "cuda/norm_launch.h"

static norm_kernels kernels = {NORM_KERNELS(rms_norm), NORM_SWEPT(rms_norm), .early_cols = 512, .held_cols = 8192};

tigon_status tigon_cuda_rms_norm_fwd(tigon_queue *queue, const tigon_rms_norm_fwd_problem *p) {
  return cuda_norm_fwd(queue, p, &kernels);
}

tigon_status tigon_cuda_rms_norm_bwd(tigon_queue *queue, const tigon_rms_norm_bwd_problem *p) {
  return cuda_norm_bwd(queue, p, queue->plan, 1, &kernels);
}
