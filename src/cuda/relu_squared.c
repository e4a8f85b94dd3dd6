#include "cuda/flat.h"
#include "cuda/kernels.h"

tigon_status tigon_cuda_relu_squared_fwd(tigon_queue *queue, const tigon_relu_squared_fwd_problem *problem) {
  static flat_kernels kernels = FLAT_KERNELS(relu_squared, relu_squared_fwd);
  tigon_relu_squared_fwd_problem p = *problem;
  const tigon_rows *const tensors[] = {&p.x, &p.y};
  return flat_launch(queue, &p, &p.space, &p.cols, p.dtype, tensors, 2, true, &kernels);
}

tigon_status tigon_cuda_relu_squared_bwd(tigon_queue *queue, const tigon_relu_squared_bwd_problem *problem) {
  static flat_kernels kernels = FLAT_KERNELS(relu_squared, relu_squared_bwd);
  tigon_relu_squared_bwd_problem p = *problem;
  const tigon_rows *const tensors[] = {&p.dy, &p.x, &p.dx};
  return flat_launch(queue, &p, &p.space, &p.cols, p.dtype, tensors, 3, true, &kernels);
}
