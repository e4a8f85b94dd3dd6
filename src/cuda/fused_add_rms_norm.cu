#include "cuda/kernel/norm_kernels.cuh"

NORM_KERNELS(fused_add_rms_norm, NORM_ADD_RMS, (NORM_MOST_THREADS), HOLD_EARLY)
