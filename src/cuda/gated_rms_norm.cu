#include "cuda/kernel/norm_kernels.cuh"

#define GATED_RMS_NORM(...) NORM_DEFINE(gated_rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
