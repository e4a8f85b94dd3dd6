/* The slots that Ascend fills; each is in the file of its op. */
#ifndef TIGON_ASCEND_ASCEND_H
#define TIGON_ASCEND_ASCEND_H

#include "ascend/launch.h"

tigon_rms_norm_fwd_fn ascend_rms_norm_fwd;
tigon_rms_norm_bwd_fn ascend_norm_bwd; /* rms_norm, fused_add_rms_norm, layer_norm */
tigon_layer_norm_fwd_fn ascend_layer_norm_fwd;
tigon_group_norm_fwd_fn ascend_group_norm_fwd;
tigon_group_norm_bwd_fn ascend_group_norm_bwd;
tigon_relu_squared_fwd_fn ascend_relu_squared_fwd;
tigon_relu_squared_bwd_fn ascend_relu_squared_bwd;
tigon_swiglu_fwd_fn ascend_swiglu_fwd;
tigon_swiglu_bwd_fn ascend_swiglu_bwd;
tigon_geglu_fwd_fn ascend_geglu_fwd;
tigon_geglu_bwd_fn ascend_geglu_bwd;
tigon_rope_fwd_fn ascend_rope_fwd;
tigon_rope_bwd_fn ascend_rope_bwd;
tigon_softmax_fwd_fn ascend_softmax_fwd;
tigon_softmax_bwd_fn ascend_softmax_bwd;
tigon_embedding_fwd_fn ascend_embedding_fwd;
tigon_embedding_bwd_fn ascend_embedding_bwd;
tigon_cross_entropy_fwd_fn ascend_cross_entropy_fwd;
tigon_cross_entropy_bwd_fn ascend_cross_entropy_bwd;
tigon_linear_fwd_fn ascend_linear_fwd; /* on a device that has aclnn */
tigon_linear_bwd_fn ascend_linear_bwd;
tigon_adamw_step_fn ascend_adamw_step;
tigon_adamw_clip_fn ascend_adamw_clip;

#endif
