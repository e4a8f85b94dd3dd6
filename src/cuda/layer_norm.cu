#include "cuda/kernel/norm_kernels.cuh"

NORM_KERNELS(layer_norm, NORM_LAYER)
NORM_SWEPT(layer_norm, NORM_LAYER)
