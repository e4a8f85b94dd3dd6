#include "cuda/gate.h"

#include "cuda/flat.h"

tigon_status cuda_gate_fwd(tigon_queue *queue, const tigon_gate_fwd_problem *problem, gate_kernels *kernels) {
  tigon_gate_fwd_problem p = *problem;
  const tigon_rows *const tensors[] = {&p.a, &p.b, &p.c};
  return flat_launch(queue, &p, &p.space, &p.cols, p.dtype, tensors, 3, GATE_FWD_PACKS, kernels->fwd_wide,
                     kernels->fwd_any);
}

tigon_status cuda_gate_bwd(tigon_queue *queue, const tigon_gate_bwd_problem *problem, gate_kernels *kernels) {
  tigon_gate_bwd_problem p = *problem;
  const tigon_rows *const tensors[] = {&p.dc, &p.a, &p.b, &p.da, &p.db};
  return flat_launch(queue, &p, &p.space, &p.cols, p.dtype, tensors, 5, GATE_BWD_PACKS, kernels->bwd_wide,
                     kernels->bwd_any);
}
