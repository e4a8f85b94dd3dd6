#include "cuda/kernel/gate.cuh"

MAP_KERNELS(geglu_tanh_fwd, 6, 2, 1, (gate_fwd<T, ACT_GELU_TANH>))
MAP_KERNELS(geglu_tanh_bwd, 5, 3, 2, (gate_bwd<T, ACT_GELU_TANH>))
MAP_KERNELS(geglu_erf_fwd, 6, 2, 1, (gate_fwd<T, ACT_GELU_ERF>))
MAP_KERNELS(geglu_erf_bwd, 5, 3, 2, (gate_bwd<T, ACT_GELU_ERF>))
