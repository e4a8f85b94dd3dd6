#ifndef TIGON_CUDA_KERNEL_PAIR_CUH
#define TIGON_CUDA_KERNEL_PAIR_CUH

#include "cuda/kernel/element.cuh"

#endif
