/* The symbols __tvm_ffi_tigon_<op>_<entry>, and __tvm_ffi_tigon_<op>_<entry>_workspace where the entry has a workspace.
 * One line an entry: its arguments, which are the fields of its struct, tensors first, then the workspace, then
 * numbers. */
#include "ffi/ffi.h"

/* The type of a field says what its argument is. */
#define KIND(field) \
  _Generic(field,                    \
      tigon_tensor: FFI_KIND_TENSOR, \
      void *: FFI_KIND_WORKSPACE,    \
      double: FFI_KIND_DOUBLE,       \
      int64_t: FFI_KIND_INT64,       \
      int: FFI_KIND_INT32,           \
      unsigned: FFI_KIND_INT32)
/* A field of `args`, the argument struct, whose type is A. */
#define F(field) \
  { #field, offsetof(A, field), KIND(args.field), false }

#define SYMBOL(name, entry, call, query)                                                                        \
  static tigon_status name##_run(tigon_context *context, const void *args, size_t *bytes) {                     \
    (void)bytes;                                                                                                \
    return call;                                                                                                \
  }                                                                                                             \
  TIGON_API int __tvm_ffi_tigon_##name(void *self, const ffi_value *values, int32_t count, ffi_value *result) { \
    (void)self;                                                                                                 \
    return entry##_call(values, count, name##_run, query ? result : NULL);                                      \
  }
#define LIST_ENTRY(entry, args_type, element_bytes, ...)                                                    \
  static int entry##_call(const ffi_value *values, int32_t count, ffi_run *run, ffi_value *result) {        \
    typedef args_type A;                                                                                    \
    A args = {0};                                                                                           \
    static const ffi_field fields[] = {__VA_ARGS__};                                                        \
    static const ffi_signature signature = {#entry, fields, sizeof fields / sizeof *fields, element_bytes}; \
    return tigon_ffi_call(&signature, &args, values, count, run, result);                                   \
  }                                                                                                         \
  SYMBOL(entry, entry, tigon_##entry(context, args), false)
#define ENTRY(entry, args_type, ...) LIST_ENTRY(entry, args_type, 0, __VA_ARGS__)
#define QUERY(entry) SYMBOL(entry##_workspace, entry, tigon_##entry##_workspace(context, args, bytes), true)

/* ---- norms ---- */

ENTRY(rms_norm_fwd, tigon_rms_norm_fwd_args, F(x), F(w), F(y), F(rstd), F(eps), F(w_offset), F(casting))
ENTRY(rms_norm_bwd, tigon_rms_norm_bwd_args, F(dy), F(x), F(w), F(rstd), F(dx), F(dw), F(workspace), F(w_offset),
      F(casting), F(accumulate_dw))
QUERY(rms_norm_bwd)

ENTRY(fused_add_rms_norm_fwd, tigon_fused_add_rms_norm_fwd_args, F(x), F(residual), F(w), F(s), F(y), F(rstd), F(eps),
      F(w_offset), F(casting))
ENTRY(fused_add_rms_norm_bwd, tigon_fused_add_rms_norm_bwd_args, F(dy), F(ds), F(s), F(w), F(rstd), F(dx), F(dw),
      F(workspace), F(w_offset), F(casting), F(accumulate_dw))
QUERY(fused_add_rms_norm_bwd)

ENTRY(layer_norm_fwd, tigon_layer_norm_fwd_args, F(x), F(w), F(b), F(y), F(mean), F(rstd), F(eps))
ENTRY(layer_norm_bwd, tigon_layer_norm_bwd_args, F(dy), F(x), F(w), F(mean), F(rstd), F(dx), F(dw), F(db), F(workspace),
      F(accumulate_dw))
QUERY(layer_norm_bwd)

ENTRY(group_norm_fwd, tigon_group_norm_fwd_args, F(x), F(w), F(b), F(y), F(mean), F(rstd), F(groups), F(eps))
ENTRY(group_norm_bwd, tigon_group_norm_bwd_args, F(dy), F(x), F(w), F(mean), F(rstd), F(dx), F(dw), F(db), F(workspace),
      F(groups), F(accumulate_dw))
QUERY(group_norm_bwd)

ENTRY(modulated_rms_norm_fwd, tigon_modulated_rms_norm_fwd_args, F(x), F(w), F(scale), F(shift), F(y), F(rstd), F(eps),
      F(w_offset), F(casting))
ENTRY(modulated_rms_norm_bwd, tigon_modulated_rms_norm_bwd_args, F(dy), F(x), F(w), F(scale), F(rstd), F(dx), F(dw),
      F(dscale), F(dshift), F(workspace), F(w_offset), F(casting), F(accumulate_dw), F(accumulate_dscale))
QUERY(modulated_rms_norm_bwd)

/* ---- activations ---- */

ENTRY(swiglu_fwd, tigon_swiglu_fwd_args, F(a), F(b), F(c), F(gate_mult), F(down_mult), F(clamp))
ENTRY(swiglu_bwd, tigon_swiglu_bwd_args, F(dc), F(a), F(b), F(da), F(db), F(gate_mult), F(down_mult), F(clamp))
ENTRY(geglu_fwd, tigon_geglu_fwd_args, F(a), F(b), F(c), F(approx))
ENTRY(geglu_bwd, tigon_geglu_bwd_args, F(dc), F(a), F(b), F(da), F(db), F(approx))
ENTRY(relu_squared_fwd, tigon_relu_squared_fwd_args, F(x), F(y))
ENTRY(relu_squared_bwd, tigon_relu_squared_bwd_args, F(dy), F(x), F(dx))

/* ---- positions, tokens, attention ---- */

ENTRY(rope_fwd, tigon_rope_args, F(q), F(k), F(cos), F(sin), F(positions), F(q_out), F(k_out), F(error), F(layout),
      F(rotary_dim))
ENTRY(rope_bwd, tigon_rope_args, F(q), F(k), F(cos), F(sin), F(positions), F(q_out), F(k_out), F(error), F(layout),
      F(rotary_dim))

ENTRY(embedding_fwd, tigon_embedding_fwd_args, F(table), F(idx), F(y), F(error))
ENTRY(embedding_bwd, tigon_embedding_bwd_args, F(dy), F(idx), F(dtable), F(error), F(workspace), F(has_padding_idx),
      F(padding_idx), F(accumulate_dtable))
QUERY(embedding_bwd)

ENTRY(softmax_fwd, tigon_softmax_fwd_args, F(x), F(mask), F(y), F(scale), F(causal))
ENTRY(softmax_bwd, tigon_softmax_bwd_args, F(dy), F(y), F(dx), F(scale))

ENTRY(attention_fwd, tigon_attention_fwd_args, F(q), F(k), F(v), F(o), F(lse), F(scale), F(causal), F(window))
ENTRY(attention_bwd, tigon_attention_bwd_args, F(d_o), F(q), F(k), F(v), F(o), F(lse), F(dq), F(dk), F(dv),
      F(workspace), F(scale), F(causal), F(window))
QUERY(attention_bwd)

/* ---- matrices and losses ---- */

ENTRY(linear_fwd, tigon_linear_fwd_args, F(x), F(w), F(b), F(y))
ENTRY(linear_bwd, tigon_linear_bwd_args, F(dy), F(x), F(w), F(dx), F(dw), F(db), F(workspace), F(accumulate_dw))
QUERY(linear_bwd)

#define OUTPUTS \
  F(out.loss), F(out.token_loss), F(out.lse), F(out.z_loss), F(out.entropy), F(out.argmax), F(out.correct), F(out.error)
#define OPTION_TENSORS F(options.weight), F(options.token_scale)
#define OPTION_NUMBERS                                                                                           \
  F(options.has_ignore_index), F(options.ignore_index), F(options.label_smoothing), F(options.lse_square_scale), \
      F(options.softcap), F(options.temperature), F(options.reduction)

ENTRY(cross_entropy_fwd, tigon_cross_entropy_fwd_args, F(logits), F(labels), OPTION_TENSORS, OUTPUTS, F(dlogits),
      F(dloss), F(workspace), OPTION_NUMBERS, F(grad_scale))
QUERY(cross_entropy_fwd)
ENTRY(cross_entropy_bwd, tigon_cross_entropy_bwd_args, F(logits), F(labels), F(lse), OPTION_TENSORS, F(dloss),
      F(dlogits), F(error), F(workspace), OPTION_NUMBERS, F(grad_scale))
QUERY(cross_entropy_bwd)

#define HEAD_AND_LOSS                                                                                            \
  F(hidden), F(weight), F(bias), F(labels), OPTION_TENSORS, OUTPUTS, F(dloss), F(dhidden), F(dweight), F(dbias), \
      F(workspace), OPTION_NUMBERS, F(grad_scale), F(accumulate_dweight)
ENTRY(fused_linear_cross_entropy_fwd, tigon_fused_linear_cross_entropy_args, HEAD_AND_LOSS)
ENTRY(fused_linear_cross_entropy_bwd, tigon_fused_linear_cross_entropy_args, HEAD_AND_LOSS)
SYMBOL(fused_linear_cross_entropy_workspace, fused_linear_cross_entropy_fwd,
       tigon_fused_linear_cross_entropy_workspace(context, args, NULL, bytes), true)
SYMBOL(fused_linear_cross_entropy_workspace_minimum, fused_linear_cross_entropy_fwd,
       tigon_fused_linear_cross_entropy_workspace(context, args, bytes, NULL), true)

/* ---- the optimizer ---- */

#define EACH(field) \
  { #field, offsetof(tigon_adamw_param, field), KIND(args.params->field), true }

LIST_ENTRY(adamw_step, tigon_adamw_step_args, sizeof(tigon_adamw_param), EACH(param), EACH(master), EACH(grad),
           EACH(exp_avg), EACH(exp_avg_sq), F(clip_factor), EACH(weight_decay), F(lr), F(beta1), F(beta2), F(eps),
           F(step))
LIST_ENTRY(adamw_clip, tigon_adamw_clip_args, sizeof(tigon_tensor), {"grads", 0, FFI_KIND_TENSOR, true}, F(norm),
           F(factor), F(workspace), F(max_norm))
QUERY(adamw_clip)
