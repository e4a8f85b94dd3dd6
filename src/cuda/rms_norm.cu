#include "cuda/kernel/norm_kernels.cuh"

NORM_KERNELS(rms_norm, NORM_RMS, (NORM_MOST_THREADS), HOLD_EARLY)
NORM_SWEPT(rms_norm, NORM_RMS)
