#include "cuda/gate.h"

tigon_status cuda_gate_fwd(tigon_queue *queue, const tigon_gate_fwd_problem *problem, bool plain,
                           gate_kernels *kernels) {
  tigon_gate_fwd_problem p = *problem;
  const tigon_rows *const tensors[] = {&p.a, &p.b, &p.c};
  return flat_launch(queue, &p, &p.space, &p.cols, p.dtype, tensors, 3, plain, &kernels->fwd);
}

tigon_status cuda_gate_bwd(tigon_queue *queue, const tigon_gate_bwd_problem *problem, bool plain,
                           gate_kernels *kernels) {
  tigon_gate_bwd_problem p = *problem;
  const tigon_rows *const tensors[] = {&p.dc, &p.a, &p.b, &p.da, &p.db};
  return flat_launch(queue, &p, &p.space, &p.cols, p.dtype, tensors, 5, plain, &kernels->bwd);
}
