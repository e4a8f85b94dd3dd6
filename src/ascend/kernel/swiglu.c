/* swiglu: c = down * silu(gate * a) * b, both clamped when asked, and its gradients. */
#include "ascend/kernel/gate.h"

AICORE_KERNEL(swiglu_fwd, pointwise_arguments) { gate_walk(ub, a, SILU, false); }
AICORE_KERNEL(swiglu_bwd, pointwise_arguments) { gate_walk(ub, a, SILU, true); }
