#include "cuda/kernel/norm_kernels.cuh"

NORM_LAYER_KERNELS(layer_norm)
