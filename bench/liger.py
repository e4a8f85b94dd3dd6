"""Liger-Kernel's functions for the cases of peers_cuda.py."""
import peers_cpu

# Not of the same numbers: Liger-Kernel's DPO takes no reference's log-probabilities. Without a reference its work is the same.
OTHER_NUMBERS = ("fused_linear_preference",)


def losses(op, t):
    """The case of a loss, by operator. None: there is none. policy_loss and preference_loss have no peer: Liger-Kernel's GRPO and
    DPO losses take logits or hidden states."""
    torch = peers_cpu.torch
    import liger_kernel.transformers.functional as liger

    if op == "cross_entropy":
        labels, = t.tensors("labels")
        return lambda x: liger.liger_cross_entropy(x, labels)
    if op == "divergence":
        teacher = t.tensors("target")[0].log_softmax(-1)
        return lambda x: liger.liger_jsd(x.log_softmax(-1), teacher)
    if op == "divergence+kl":
        teacher = t.tensors("target")[0].log_softmax(-1)
        return lambda x: liger.liger_kl_div(x.log_softmax(-1), teacher, reduction="batchmean", log_target=True)
    if op == "fused_linear_cross_entropy":
        labels, = t.tensors("labels")
        return lambda h, w: liger.liger_fused_linear_cross_entropy(h, w, labels, ignore_index=0)
    if op == "fused_linear_divergence":
        teacher = t.tensors("teacher_hidden", "teacher_weight")
        return lambda h, w: liger.liger_fused_linear_jsd(h, w, *teacher)
    if op == "linear_logprob":
        from liger_kernel.ops.fused_linear_scaled_cross_entropy import LigerFusedLinearScaledCrossEntropyFunction
        labels = t.tensors("labels")[0].long()
        return lambda h, w: -LigerFusedLinearScaledCrossEntropyFunction.apply(h, w, labels)
    if op == "fused_linear_policy":
        from liger_kernel.chunked_loss import LigerFusedLinearGRPOLoss
        labels, advantage = t.tensors("labels", "advantage")
        labels = labels.long().view(len(advantage), -1)
        head = LigerFusedLinearGRPOLoss(beta=0.0, use_ref_model=False, loss_type="grpo")
        every = torch.ones_like(labels)
        return lambda h, w: head(h.view(*labels.shape, -1), w, labels, every, advantage)[0]
    if op == "fused_linear_preference":
        from liger_kernel.chunked_loss import LigerFusedLinearDPOLoss
        labels, ref = t.tensors("labels", "ref")
        labels = labels.long().view(len(ref), -1)
        head = LigerFusedLinearDPOLoss(use_ref_model=False)
        return lambda h, w: head(w, h.view(*labels.shape, -1), labels)[0]
    return None


def others(op, t, referenced):
    torch = peers_cpu.torch
    import liger_kernel.transformers.functional as liger

    if op == "rope":
        cos, sin = (torch.cat([a, a], -1)[None].to(torch.bfloat16) for a in t.tensors("cos", "sin"))

        def rope(q, k):
            return tuple(x.transpose(1, 2) for x in liger.liger_rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin))

        return rope
    if op == "group_norm":
        groups = t.tensors("mean")[0].shape[1]
        return lambda x, w, b: liger.liger_group_norm(x, w, b, x.shape[1], groups, 1e-5)
    if op == "embedding":
        from liger_kernel.ops.experimental.embedding import LigerEmbeddingFunction
        idx, = t.tensors("idx")
        return lambda table: LigerEmbeddingFunction.apply(table, idx)
    plain = {name: getattr(liger, f"liger_{name}", None) for name in referenced}  # called with the same tensors in the same order
    plain |= {"rms_norm": lambda x, w: liger.liger_rms_norm(x, w, 1e-6),
              "fused_add_rms_norm": lambda x, r, w: liger.liger_fused_add_rms_norm(x, r, w, 1e-6),
              "layer_norm": lambda x, w, b: liger.liger_layer_norm(x, w, b, 1e-5),
              "swiglu": lambda a, b: liger.liger_swiglu(a, b), "geglu": lambda a, b: liger.liger_geglu(a, b),
              "softmax": lambda x: liger.liger_softmax(x)}
    return plain.get(op)


def case(op, t, referenced):
    """None: it has none, or is not installed."""
    try:
        return losses(op, t) or others(op, t, referenced)
    except ModuleNotFoundError as error:
        if error.name != "liger_kernel":
            raise
        return None
