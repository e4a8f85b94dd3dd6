#include "cuda/kernels.h"
#include "cuda/norm_launch.h"

static norm_kernels kernels = {NORM_KERNELS(layer_norm), NORM_SWEPT(layer_norm),
                               .fwd_late = CUDA_KERNELS(layer_norm, layer_norm_fwd_late),
                               .bwd_held = CUDA_KERNELS(layer_norm, layer_norm_bwd_held)};

tigon_status tigon_cuda_layer_norm_fwd(tigon_queue *queue, const tigon_layer_norm_fwd_problem *p) {
  return cuda_norm_fwd(queue, p, &kernels);
}

tigon_status tigon_cuda_layer_norm_bwd(tigon_queue *queue, const tigon_layer_norm_bwd_problem *p) {
  const int sums = 2; /* a slab is [2, cols]: dw, db */
  return cuda_norm_bwd(queue, p, queue->plan, sums, &kernels);
}
