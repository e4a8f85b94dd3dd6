/* swiglu: c = down * silu(gate * a) * b, both clamped when asked, and its gradients. */
#include "ascend/kernel/gate.h"

AICORE_KERNEL(swiglu_fwd, gate_arguments) { gate_walk(ub, a, SILU, false); }
AICORE_KERNEL(swiglu_bwd, gate_arguments) { gate_walk(ub, a, SILU, true); }
