/* geglu: c = gelu(a) * b and its gradients, gelu by tanh or by erf. */
#include "ascend/kernel/gate.h"

AICORE void geglu(ub_arena *ub, const pointwise_arguments *a, bool backward) {
  if (a->approx == TIGON_GELU_ERF)
    gate_walk(ub, a, GELU_ERF, backward);
  else
    gate_walk(ub, a, GELU_TANH, backward);
}

AICORE_KERNEL(geglu_fwd, pointwise_arguments) { geglu(ub, a, false); }
AICORE_KERNEL(geglu_bwd, pointwise_arguments) { geglu(ub, a, true); }
