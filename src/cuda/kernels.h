/* The slots that this room's files define, and what workspace some need. */
#ifndef TIGON_CUDA_KERNELS_H
#define TIGON_CUDA_KERNELS_H

#include "cuda/cuda.h"

extern const tigon_kernels tigon_cuda_kernels, tigon_cuda_rounded_kernels;

#define TIGON_SLOT(op, entry) tigon_##op##_##entry##_fn tigon_cuda_##op##_##entry;
#define TIGON_WORKSPACE(op, entry) tigon_##op##_##entry##_bytes tigon_cuda_##op##_##entry##_bytes;
#include "ops.def"

#endif
