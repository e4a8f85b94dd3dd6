/* The kernels of NVIDIA GPUs, and the same where attention of 16 bits rounds its weights. */
#include "cuda/kernels.h"

#define TIGON_SLOT(op, entry) .op##_##entry.run = tigon_cuda_##op##_##entry, .op##_##entry.dtypes = TIGON_FLOATS,
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = tigon_cuda_##op##_##entry##_bytes,
enum { TILE = 256 /* a warp of 16-byte vectors, in 16-bit dtypes */ };

const tigon_kernels tigon_cuda_kernels = {
    .variant = "cuda",
    .tile = TILE,
#include "ops.def"
};

/* ops.def takes its macros away. */
#define TIGON_SLOT(op, entry) .op##_##entry.run = tigon_cuda_##op##_##entry, .op##_##entry.dtypes = TIGON_FLOATS,
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = tigon_cuda_##op##_##entry##_bytes,
const tigon_kernels tigon_cuda_rounded_kernels = {
    .variant = "cuda",
    .tile = TILE,
#include "ops.def"
    .attention_fwd.rounded = true,
    .attention_bwd.rounded = true,
};
