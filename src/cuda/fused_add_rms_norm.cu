#include "cuda/kernel/norm_kernels.cuh"

#define FUSED_ADD_RMS_NORM(...) NORM_DEFINE(fused_add_rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
