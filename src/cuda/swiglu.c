#include "cuda/gate.h"
#include "cuda/kernels.h"

static gate_kernels kernels = GATE_KERNELS(swiglu, swiglu);

tigon_status tigon_cuda_swiglu_fwd(tigon_queue *queue, const tigon_swiglu_fwd_problem *p) {
  return cuda_gate_fwd(queue, p, gate_is_plain(p), &kernels);
}

tigon_status tigon_cuda_swiglu_bwd(tigon_queue *queue, const tigon_swiglu_bwd_problem *p) {
  return cuda_gate_bwd(queue, p, gate_is_plain(p), &kernels);
}
