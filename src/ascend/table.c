/* The kernels of Ascend: of the simulator, and of an NPU, which adds linear where its library has it, and has no fused_moe. */
#include "ascend/ascend.h"

/* One launcher serves several operators. */
#define ascend_fused_add_rms_norm_fwd ascend_rms_norm_fwd
#define ascend_modulated_rms_norm_fwd ascend_rms_norm_fwd
#define ascend_rms_norm_quantised ascend_rms_norm_fwd
#define ascend_vocab_parallel_cross_entropy_stats ascend_cross_entropy_fwd
#define ascend_vocab_parallel_cross_entropy_bwd ascend_cross_entropy_bwd
/* Slots that have no kernel, and one that needs no workspace. */
#define ascend_attention_fwd NULL
#define ascend_attention_bwd NULL
#define ascend_attention_bwd_bytes NULL
#define ascend_linear_fwd NULL
#define ascend_linear_bwd NULL
#define ascend_embedding_bwd_bytes NULL

extern const tigon_kernels tigon_ascend_kernels;
const tigon_kernels tigon_ascend_kernels = {
    .variant = "dav-2201",
    .tile = V_LANES,
#define TIGON_SLOT(op, entry) .op##_##entry.run = ascend_##op##_##entry, .op##_##entry.dtypes = TIGON_FLOATS,
#define TIGON_WORKSPACE(op, entry) .op##_##entry.workspace = ascend_##op##_##entry##_bytes,
#include "ops.def"
    .attention_fwd.rounded = true,
    .attention_bwd.rounded = true,
};
