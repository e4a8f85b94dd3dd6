#include "cuda/kernel/gate.cuh"

GATE_KERNELS(geglu_tanh, ACT_GELU_TANH)
GATE_KERNELS(geglu_erf, ACT_GELU_ERF)
