#include "cuda/kernel/norm_kernels.cuh"

NORM_KERNELS(layer_norm, NORM_LAYER, (NORM_HELD_THREADS, 3), HOLD_LATE)
NORM_SWEPT(layer_norm, NORM_LAYER)
