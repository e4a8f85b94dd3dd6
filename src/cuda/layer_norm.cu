#include "cuda/kernel/norm_kernels.cuh"

#define LAYER_NORM(...) NORM_DEFINE(layer_norm, __VA_ARGS__)
#include "cuda/norm_kernels.def"
