/* The kernels of NVIDIA GPUs. */
#include "cuda/kernels.h"

extern const tigon_kernels tigon_cuda_kernels;
const tigon_kernels tigon_cuda_kernels = {
    .variant = "cuda",
    .tile = 256, /* a warp of 16-byte vectors, in 16-bit dtypes */
#define TIGON_SLOT(op, entry) .op##_##entry.run = tigon_cuda_##op##_##entry, .op##_##entry.dtypes = TIGON_FLOATS,
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = tigon_cuda_##op##_##entry##_bytes,
#include "ops.def"
    .attention_fwd.rounded = true,
    .attention_bwd.rounded = true,
};
