/* The kernels of NVIDIA GPUs. */
#include "cuda/kernels.h"

#define tigon_cuda_mhc_coeffs_fwd NULL
#define tigon_cuda_mhc_coeffs_bwd NULL
#define tigon_cuda_mhc_coeffs_bwd_bytes NULL
#define tigon_cuda_mhc_post_res_fwd NULL
#define tigon_cuda_mhc_post_res_bwd NULL

extern const tigon_kernels tigon_cuda_kernels;
const tigon_kernels tigon_cuda_kernels = {
    .variant = "cuda", .tile = 256, /* a warp of 16-byte vectors, in 16-bit dtypes */
#define TIGON_SLOT(op, entry) .op##_##entry.run = tigon_cuda_##op##_##entry, .op##_##entry.dtypes = TIGON_FLOATS,
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = tigon_cuda_##op##_##entry##_bytes,
#include "ops.def"
};
