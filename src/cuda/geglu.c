#include "cuda/gate.h"
#include "cuda/kernels.h"

static gate_kernels tanh_kernels = GATE_KERNELS(geglu, geglu_tanh);
static gate_kernels erf_kernels = GATE_KERNELS(geglu, geglu_erf);

static gate_kernels *kernels_of(tigon_gelu approx) { return approx == TIGON_GELU_ERF ? &erf_kernels : &tanh_kernels; }

tigon_status tigon_cuda_geglu_fwd(tigon_queue *queue, const tigon_geglu_fwd_problem *p) {
  return cuda_gate_fwd(queue, p, true, kernels_of(p->approx));
}

tigon_status tigon_cuda_geglu_bwd(tigon_queue *queue, const tigon_geglu_bwd_problem *p) {
  return cuda_gate_bwd(queue, p, true, kernels_of(p->approx));
}
