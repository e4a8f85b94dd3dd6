#include "cuda/kernel/gate.cuh"

GATE_KERNELS(swiglu, ACT_SILU)
