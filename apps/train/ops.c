#include "ops.h"

bool train_ops_ready(train_ops *ops, train_memory *memory, train_error *error) {
  ops->planning = false;
  return !ops->failed &&
         train_device_alloc(memory, ops->workspace_need, "the operators' workspace", &ops->workspace, error);
}

static void take(train_ops *ops, tigon_status status) {
  if (!train_ok(ops->context, status, ops->error)) ops->failed = true;
}

static bool idle(const train_ops *ops) { return ops->failed || ops->planning; }

/* The end of a query for workspace: keeps the largest need. */
static void need(train_ops *ops, tigon_status status, size_t bytes) {
  take(ops, status);
  if (bytes > ops->workspace_need) ops->workspace_need = bytes;
}

void train_op_linear(train_ops *ops, tigon_tensor x, tigon_tensor w, tigon_tensor y) {
  if (idle(ops)) return;
  take(ops, tigon_linear_fwd(ops->context, &(tigon_linear_fwd_args){.x = x, .w = w, .y = y}));
}

static void linear_bwd(train_ops *ops, tigon_linear_bwd_args *args) {
  if (ops->failed) return;
  if (ops->planning) {
    size_t bytes = 0;
    const tigon_status status = tigon_linear_bwd_workspace(ops->context, args, &bytes);
    need(ops, status, bytes);
    return;
  }
  args->workspace = ops->workspace.data;
  args->workspace_bytes = ops->workspace.bytes;
  take(ops, tigon_linear_bwd(ops->context, args));
}

void train_op_linear_dw(train_ops *ops, tigon_tensor dy, tigon_tensor x, tigon_tensor dw, bool accumulate) {
  linear_bwd(ops, &(tigon_linear_bwd_args){.dy = dy, .x = x, .dw = dw, .accumulate_dw = accumulate});
}

void train_op_linear_dx(train_ops *ops, tigon_tensor dy, tigon_tensor w, tigon_tensor dx) {
  linear_bwd(ops, &(tigon_linear_bwd_args){.dy = dy, .w = w, .dx = dx});
}

void train_op_norm(train_ops *ops, tigon_tensor x, tigon_tensor w, tigon_tensor y, tigon_tensor rstd, double eps) {
  if (idle(ops)) return;
  take(ops,
       tigon_rms_norm_fwd(ops->context, &(tigon_rms_norm_fwd_args){.x = x, .w = w, .y = y, .rstd = rstd, .eps = eps}));
}

void train_op_add_norm(train_ops *ops, tigon_tensor x, tigon_tensor residual, tigon_tensor w, tigon_tensor s,
                       tigon_tensor y, tigon_tensor rstd, double eps) {
  if (idle(ops)) return;
  const tigon_fused_add_rms_norm_fwd_args args = {
      .x = x, .residual = residual, .w = w, .s = s, .y = y, .rstd = rstd, .eps = eps};
  take(ops, tigon_fused_add_rms_norm_fwd(ops->context, &args));
}

void train_op_add_norm_bwd(train_ops *ops, tigon_tensor dy, tigon_tensor ds, tigon_tensor s, tigon_tensor w,
                           tigon_tensor rstd, tigon_tensor dx, tigon_tensor dw, bool accumulate) {
  if (ops->failed) return;
  tigon_fused_add_rms_norm_bwd_args args = {
      .dy = dy, .ds = ds, .s = s, .w = w, .rstd = rstd, .dx = dx, .dw = dw, .accumulate_dw = accumulate};
  if (ops->planning) {
    size_t bytes = 0;
    const tigon_status status = tigon_fused_add_rms_norm_bwd_workspace(ops->context, &args, &bytes);
    need(ops, status, bytes);
    return;
  }
  args.workspace = ops->workspace.data;
  args.workspace_bytes = ops->workspace.bytes;
  take(ops, tigon_fused_add_rms_norm_bwd(ops->context, &args));
}

void train_op_rope(train_ops *ops, tigon_tensor q, tigon_tensor k, tigon_tensor cosine, tigon_tensor sine,
                   tigon_tensor positions) {
  if (idle(ops)) return;
  const tigon_rope_args args = {
      .q = q, .k = k, .cos = cosine, .sin = sine, .positions = positions, .q_out = q, .k_out = k};
  take(ops, tigon_rope_fwd(ops->context, &args));
}

void train_op_rope_bwd(train_ops *ops, tigon_tensor dq, tigon_tensor dk, tigon_tensor cosine, tigon_tensor sine) {
  if (idle(ops)) return;
  const tigon_rope_args args = {.q = dq, .k = dk, .cos = cosine, .sin = sine, .q_out = dq, .k_out = dk};
  take(ops, tigon_rope_bwd(ops->context, &args));
}

void train_op_attention(train_ops *ops, tigon_tensor q, tigon_tensor k, tigon_tensor v, tigon_tensor o,
                        tigon_tensor lse) {
  if (idle(ops)) return;
  take(ops, tigon_attention_fwd(ops->context,
                                &(tigon_attention_fwd_args){.q = q, .k = k, .v = v, .o = o, .lse = lse, .causal = 1}));
}

void train_op_attention_bwd(train_ops *ops, const tigon_attention_bwd_args *given) {
  if (ops->failed) return;
  tigon_attention_bwd_args args = *given;
  args.causal = 1;
  if (ops->planning) {
    size_t bytes = 0;
    const tigon_status status = tigon_attention_bwd_workspace(ops->context, &args, &bytes);
    need(ops, status, bytes);
    return;
  }
  args.workspace = ops->workspace.data;
  args.workspace_bytes = ops->workspace.bytes;
  take(ops, tigon_attention_bwd(ops->context, &args));
}

void train_op_swiglu(train_ops *ops, tigon_tensor gate, tigon_tensor up, tigon_tensor c) {
  if (idle(ops)) return;
  take(ops, tigon_swiglu_fwd(ops->context, &(tigon_swiglu_fwd_args){.a = gate, .b = up, .c = c}));
}

void train_op_swiglu_bwd(train_ops *ops, tigon_tensor dc, tigon_tensor gate, tigon_tensor up) {
  if (idle(ops)) return;
  take(ops,
       tigon_swiglu_bwd(ops->context, &(tigon_swiglu_bwd_args){.dc = dc, .a = gate, .b = up, .da = gate, .db = up}));
}

void train_op_embedding(train_ops *ops, tigon_tensor table, tigon_tensor tokens, tigon_tensor y) {
  if (idle(ops)) return;
  take(ops, tigon_embedding_fwd(ops->context, &(tigon_embedding_fwd_args){.table = table, .idx = tokens, .y = y}));
}

void train_op_embedding_bwd(train_ops *ops, tigon_tensor dy, tigon_tensor tokens, tigon_tensor dtable,
                            bool accumulate) {
  if (ops->failed) return;
  tigon_embedding_bwd_args args = {.dy = dy, .idx = tokens, .dtable = dtable, .accumulate_dtable = accumulate};
  if (ops->planning) {
    size_t bytes = 0;
    const tigon_status status = tigon_embedding_bwd_workspace(ops->context, &args, &bytes);
    need(ops, status, bytes);
    return;
  }
  args.workspace = ops->workspace.data;
  args.workspace_bytes = ops->workspace.bytes;
  take(ops, tigon_embedding_bwd(ops->context, &args));
}

static void head(train_ops *ops, tigon_fused_linear_cross_entropy_args *args) {
  if (ops->failed) return;
  args->options.reduction = TIGON_REDUCTION_SUM;
  args->options.has_ignore_index = 1;
  args->options.ignore_index = TRAIN_NO_LABEL;
  if (ops->planning) {
    size_t minimum = 0, recommended = 0;
    const tigon_status status = tigon_fused_linear_cross_entropy_workspace(ops->context, args, &minimum, &recommended);
    const size_t wish = recommended < minimum + ops->head_grant ? recommended : minimum + ops->head_grant;
    need(ops, status, wish > minimum ? wish : minimum);
    return;
  }
  args->workspace = ops->workspace.data;
  args->workspace_bytes = ops->workspace.bytes;
  take(ops, tigon_fused_linear_cross_entropy_fwd(ops->context, args));
}

void train_op_head(train_ops *ops, tigon_tensor hidden, tigon_tensor weight, tigon_tensor labels, tigon_tensor loss) {
  head(ops, &(tigon_fused_linear_cross_entropy_args){
                .hidden = hidden, .weight = weight, .labels = labels, .out.loss = loss});
}

void train_op_head_grad(train_ops *ops, tigon_tensor hidden, tigon_tensor weight, tigon_tensor labels,
                        tigon_tensor loss, double grad_scale, tigon_tensor dweight, bool accumulate) {
  head(ops, &(tigon_fused_linear_cross_entropy_args){.hidden = hidden,
                                                     .weight = weight,
                                                     .labels = labels,
                                                     .out.loss = loss,
                                                     .grad_scale = grad_scale,
                                                     .dhidden = hidden,
                                                     .dweight = dweight,
                                                     .accumulate_dweight = accumulate});
}
