/* The kernels of one instruction set; compiled once per set. */
#include "cpu/kernels.h"

#define TIGON_CPU_STRING_(text) #text
#define TIGON_CPU_STRING(text) TIGON_CPU_STRING_(text)

extern const tigon_kernels TIGON_CPU(kernels);
const tigon_kernels TIGON_CPU(kernels) = {
    .variant = TIGON_CPU_STRING(TIGON_ISA),
    .tile = LANES,
    .rms_norm_fwd = {TIGON_CPU(rms_norm_fwd), TIGON_FLOATS},
    .rms_norm_bwd = {TIGON_CPU(rms_norm_bwd), TIGON_FLOATS, TIGON_CPU(rms_norm_bwd_bytes)},
    .fused_add_rms_norm_fwd = {TIGON_CPU(fused_add_rms_norm_fwd), TIGON_FLOATS},
    .fused_add_rms_norm_bwd = {TIGON_CPU(fused_add_rms_norm_bwd), TIGON_FLOATS,
                               TIGON_CPU(fused_add_rms_norm_bwd_bytes)},
    .layer_norm_fwd = {TIGON_CPU(layer_norm_fwd), TIGON_FLOATS},
    .layer_norm_bwd = {TIGON_CPU(layer_norm_bwd), TIGON_FLOATS, TIGON_CPU(layer_norm_bwd_bytes)},
    .group_norm_fwd = {TIGON_CPU(group_norm_fwd), TIGON_FLOATS},
    .group_norm_bwd = {TIGON_CPU(group_norm_bwd), TIGON_FLOATS, TIGON_CPU(group_norm_bwd_bytes)},
    .modulated_rms_norm_fwd = {TIGON_CPU(modulated_rms_norm_fwd), TIGON_FLOATS},
    .modulated_rms_norm_bwd = {TIGON_CPU(modulated_rms_norm_bwd), TIGON_FLOATS,
                               TIGON_CPU(modulated_rms_norm_bwd_bytes)},
    .swiglu_fwd = {TIGON_CPU(swiglu_fwd), TIGON_FLOATS},
    .swiglu_bwd = {TIGON_CPU(swiglu_bwd), TIGON_FLOATS},
    .geglu_fwd = {TIGON_CPU(geglu_fwd), TIGON_FLOATS},
    .geglu_bwd = {TIGON_CPU(geglu_bwd), TIGON_FLOATS},
    .relu_squared_fwd = {TIGON_CPU(relu_squared_fwd), TIGON_FLOATS},
    .relu_squared_bwd = {TIGON_CPU(relu_squared_bwd), TIGON_FLOATS},
    .cross_entropy_fwd = {TIGON_CPU(cross_entropy_fwd), TIGON_FLOATS},
    .cross_entropy_bwd = {TIGON_CPU(cross_entropy_bwd), TIGON_FLOATS},
    .linear_fwd = {TIGON_CPU(linear_fwd), TIGON_FLOATS},
    .linear_bwd = {TIGON_CPU(linear_bwd), TIGON_FLOATS},
    .attention_fwd = {TIGON_CPU(attention_fwd), TIGON_FLOATS},
    .attention_bwd = {TIGON_CPU(attention_bwd), TIGON_FLOATS},
    .softmax_fwd = {TIGON_CPU(softmax_fwd), TIGON_FLOATS},
    .softmax_bwd = {TIGON_CPU(softmax_bwd), TIGON_FLOATS},
    .rope_fwd = {TIGON_CPU(rope_fwd), TIGON_FLOATS},
    .rope_bwd = {TIGON_CPU(rope_bwd), TIGON_FLOATS},
    .embedding_fwd = {TIGON_CPU(embedding_fwd), TIGON_FLOATS},
    .embedding_bwd = {TIGON_CPU(embedding_bwd), TIGON_FLOATS, TIGON_CPU(embedding_bwd_bytes)},
    .adamw_step = {TIGON_CPU(adamw_step), TIGON_FLOATS},
    .adamw_clip = {TIGON_CPU(adamw_clip), TIGON_FLOATS},
};
