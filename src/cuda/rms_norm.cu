#include "cuda/kernel/norm_kernels.cuh"

#define RMS_NORM(...) NORM_DEFINE(rms_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
