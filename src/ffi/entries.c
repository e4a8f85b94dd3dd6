/* The symbols __tvm_ffi_tigon_<op>_<entry>, and __tvm_ffi_tigon_<op>_<entry>_workspace where the entry has a workspace. */
#include "ffi/ffi.h"

enum {
#define TIGON_SLOT(op, entry) ENTRY_##op##_##entry,
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#include "ops.def"
};

#define SYMBOL(name, entry, purpose)                                                                            \
  TIGON_API int __tvm_ffi_tigon_##name(void *self, const ffi_value *values, int32_t count, ffi_value *result) { \
    (void)self;                                                                                                 \
    return tigon_ffi_call(entry, purpose, values, count, result);                                               \
  }
#define TIGON_SLOT(op, entry) SYMBOL(op##_##entry, ENTRY_##op##_##entry, FFI_CALL)
#define TIGON_COMPOSITE(op, entry) TIGON_SLOT(op, entry)
#define TIGON_QUERY(op, entry) SYMBOL(op##_##entry##_workspace, ENTRY_##op##_##entry, FFI_WORKSPACE)
#include "ops.def"

SYMBOL(fused_linear_cross_entropy_workspace, ENTRY_fused_linear_cross_entropy_fwd, FFI_WORKSPACE)
SYMBOL(fused_linear_cross_entropy_workspace_minimum, ENTRY_fused_linear_cross_entropy_fwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(linear_logprob_fwd_workspace, ENTRY_linear_logprob_fwd, FFI_WORKSPACE)
SYMBOL(linear_logprob_fwd_workspace_minimum, ENTRY_linear_logprob_fwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(linear_logprob_bwd_workspace, ENTRY_linear_logprob_bwd, FFI_WORKSPACE)
SYMBOL(linear_logprob_bwd_workspace_minimum, ENTRY_linear_logprob_bwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(fused_linear_policy_fwd_workspace, ENTRY_fused_linear_policy_fwd, FFI_WORKSPACE)
SYMBOL(fused_linear_policy_fwd_workspace_minimum, ENTRY_fused_linear_policy_fwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(fused_linear_preference_fwd_workspace, ENTRY_fused_linear_preference_fwd, FFI_WORKSPACE)
SYMBOL(fused_linear_preference_fwd_workspace_minimum, ENTRY_fused_linear_preference_fwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(fused_linear_divergence_fwd_workspace, ENTRY_fused_linear_divergence_fwd, FFI_WORKSPACE)
SYMBOL(fused_linear_divergence_fwd_workspace_minimum, ENTRY_fused_linear_divergence_fwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(fused_linear_topk_divergence_fwd_workspace, ENTRY_fused_linear_topk_divergence_fwd, FFI_WORKSPACE)
SYMBOL(fused_linear_topk_divergence_fwd_workspace_minimum, ENTRY_fused_linear_topk_divergence_fwd,
       FFI_WORKSPACE_MINIMUM)
SYMBOL(fused_moe_fwd_workspace, ENTRY_fused_moe_fwd, FFI_WORKSPACE)
SYMBOL(fused_moe_fwd_workspace_minimum, ENTRY_fused_moe_fwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(fused_moe_bwd_workspace, ENTRY_fused_moe_bwd, FFI_WORKSPACE)
SYMBOL(fused_moe_bwd_workspace_minimum, ENTRY_fused_moe_bwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(mlp_fwd_workspace, ENTRY_mlp_fwd, FFI_WORKSPACE)
SYMBOL(mlp_fwd_workspace_minimum, ENTRY_mlp_fwd, FFI_WORKSPACE_MINIMUM)
SYMBOL(mlp_bwd_workspace, ENTRY_mlp_bwd, FFI_WORKSPACE)
SYMBOL(mlp_bwd_workspace_minimum, ENTRY_mlp_bwd, FFI_WORKSPACE_MINIMUM)
