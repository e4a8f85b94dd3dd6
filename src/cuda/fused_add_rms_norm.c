#include "cuda/kernels.h"
#include "cuda/norm_launch.h"

static norm_kernels kernels = {NORM_KERNELS(fused_add_rms_norm), .early_cols = 512};
static norm_kernels alone = {NORM_KERNELS(rms_norm)}; /* without ds there is nothing to add */

tigon_status tigon_cuda_fused_add_rms_norm_fwd(tigon_queue *queue, const tigon_fused_add_rms_norm_fwd_problem *p) {
  return cuda_norm_fwd(queue, p, &kernels);
}

tigon_status tigon_cuda_fused_add_rms_norm_bwd(tigon_queue *queue, const tigon_fused_add_rms_norm_bwd_problem *p) {
  return cuda_norm_bwd(queue, p, queue->plan, 1, p->ds.data ? &kernels : &alone);
}
