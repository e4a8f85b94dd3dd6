/* The kernels of NVIDIA GPUs. */
#include "cuda/kernels.h"

extern const tigon_kernels tigon_cuda_kernels;
const tigon_kernels tigon_cuda_kernels = {
    .variant = "cuda",
    .tile = 256, /* a warp of 16-byte vectors, in 16-bit dtypes */
    .rms_norm_fwd = {tigon_cuda_rms_norm_fwd, TIGON_FLOATS},
    .rms_norm_bwd = {tigon_cuda_rms_norm_bwd, TIGON_FLOATS},
    .fused_add_rms_norm_fwd = {tigon_cuda_fused_add_rms_norm_fwd, TIGON_FLOATS},
    .fused_add_rms_norm_bwd = {tigon_cuda_fused_add_rms_norm_bwd, TIGON_FLOATS},
    .layer_norm_fwd = {tigon_cuda_layer_norm_fwd, TIGON_FLOATS},
    .layer_norm_bwd = {tigon_cuda_layer_norm_bwd, TIGON_FLOATS},
    .modulated_rms_norm_fwd = {tigon_cuda_modulated_rms_norm_fwd, TIGON_FLOATS},
    .modulated_rms_norm_bwd = {tigon_cuda_modulated_rms_norm_bwd, TIGON_FLOATS},
    .group_norm_fwd = {tigon_cuda_group_norm_fwd, TIGON_FLOATS},
    .group_norm_bwd = {tigon_cuda_group_norm_bwd, TIGON_FLOATS},
    .linear_fwd = {tigon_cuda_linear_fwd, TIGON_FLOATS},
    .linear_bwd = {tigon_cuda_linear_bwd, TIGON_FLOATS},
    .swiglu_fwd = {tigon_cuda_swiglu_fwd, TIGON_FLOATS},
    .swiglu_bwd = {tigon_cuda_swiglu_bwd, TIGON_FLOATS},
    .geglu_fwd = {tigon_cuda_geglu_fwd, TIGON_FLOATS},
    .geglu_bwd = {tigon_cuda_geglu_bwd, TIGON_FLOATS},
    .relu_squared_fwd = {tigon_cuda_relu_squared_fwd, TIGON_FLOATS},
    .relu_squared_bwd = {tigon_cuda_relu_squared_bwd, TIGON_FLOATS},
    .rope_fwd = {tigon_cuda_rope_fwd, TIGON_FLOATS},
    .rope_bwd = {tigon_cuda_rope_bwd, TIGON_FLOATS},
    .softmax_fwd = {tigon_cuda_softmax_fwd, TIGON_FLOATS},
    .softmax_bwd = {tigon_cuda_softmax_bwd, TIGON_FLOATS},
    .embedding_fwd = {tigon_cuda_embedding_fwd, TIGON_FLOATS},
    .embedding_bwd = {tigon_cuda_embedding_bwd, TIGON_FLOATS},
    .attention_fwd = {tigon_cuda_attention_fwd, TIGON_FLOATS},
    .attention_bwd = {tigon_cuda_attention_bwd, TIGON_FLOATS},
    .cross_entropy_fwd = {tigon_cuda_cross_entropy_fwd, TIGON_FLOATS},
    .cross_entropy_bwd = {tigon_cuda_cross_entropy_bwd, TIGON_FLOATS},
    .adamw_step = {tigon_cuda_adamw_step, TIGON_FLOATS},
    .adamw_clip = {tigon_cuda_adamw_clip, TIGON_FLOATS},
};
