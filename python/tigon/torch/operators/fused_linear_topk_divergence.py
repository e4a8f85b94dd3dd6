"""fused_linear_topk_divergence: distillation from hidden states and a teacher's top k, without the student's logits."""

import torch

from tigon.torch._autograd import lowered, nonzero
from tigon.torch._heads import early_head, may_be_early
from tigon.torch._op import Op
from tigon.torch.operators.fused_linear_divergence import _METRICS, FusedLinearDivergenceOutputs, _logit_map
from tigon.torch.operators.losses import _denominator
from tigon.torch.operators.topk_divergence import _KIND, _TARGET_IS

FUNCTIONS = ["fused_linear_topk_divergence"]
MODULES = ["FusedLinearTopKDivergence"]

_NAME = "fused_linear_topk_divergence"
_fwd = Op(
    f"{_NAME}_fwd",
    options=("bool more", "int workspace_bytes"),
    when=dict.fromkeys(_METRICS, lambda given: given["more"]),
)
_FusedLinearTopKDivergence = early_head(_NAME, _fwd, tensors=9, bias=2, metrics=len(_METRICS))


def fused_linear_topk_divergence(
    hidden,
    weight,
    target,
    target_ids,
    bias=None,
    labels=None,
    *,
    kind="kl",
    target_is="log_probs",
    tail=False,
    least_tail=0.0,
    ignore_index=-100,
    beta=0.5,
    temperature=1.0,
    softcap=None,
    logit_scale=1.0,
    weight_soft=1.0,
    weight_hard=0.0,
    token_scale=None,
    denominator=None,
    by_temperature_squared=False,
    logits_in_f32=False,
    workspace_bytes=None,
    outputs=False,
):
    """The mean over tokens of weight_soft * topk_divergence(logits, target, target_ids) + weight_hard *
    cross_entropy(logits, labels), without ever holding the student's logits or making a teacher's, or with `outputs`
    FusedLinearDivergenceOutputs.

    hidden [..., H], weight [V, H] and bias [V] are the student's, of one dtype, f32, bf16 or f16 (under autocast,
    autocast's own; a bias may be f32). target and target_ids [..., k], kind, target_is, tail and least_tail are
    topk_divergence's; a target in another 16-bit dtype than hidden is taken as f32. All other arguments are those of
    fused_linear_divergence. target gets no gradient; the student's gradients are made with the loss.
    """
    granted = 0 if workspace_bytes is None else nonzero(_NAME, "workspace_bytes", workspace_bytes)
    options = (
        *(outputs, granted, _KIND[kind], _TARGET_IS[target_is], beta, nonzero(_NAME, "temperature", temperature)),
        *_logit_map(_NAME, "", softcap, logit_scale),
        *(bool(tail), least_tail, nonzero(_NAME, "weight_soft", weight_soft), weight_hard),
        *(ignore_index is not None, ignore_index or 0, bool(by_temperature_squared), bool(logits_in_f32)),
    )
    hidden, weight, bias = lowered(hidden, weight, bias)
    target = target.detach()
    if target.dtype != hidden.dtype:
        target = target.float()
    inputs = hidden, weight, bias, target, target_ids, labels, token_scale
    found = _FusedLinearTopKDivergence(
        *inputs, _denominator(hidden, denominator), outputs, may_be_early(hidden), options
    )
    if not outputs:
        return found
    loss, soft_loss, hard_loss, token_loss = found
    return FusedLinearDivergenceOutputs(loss, soft_loss, hard_loss, token_loss.reshape(hidden.shape[:-1]))


class FusedLinearTopKDivergence(torch.nn.Module):
    """functional.fused_linear_topk_divergence; the options that are no tensors are the keyword arguments."""

    def __init__(self, kind="kl", **options):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(self, hidden, weight, target, target_ids, bias=None, labels=None, **tensors):
        inputs = hidden, weight, target, target_ids, bias, labels
        return fused_linear_topk_divergence(*inputs, kind=self.kind, **self.options, **tensors)

    def extra_repr(self):
        return ", ".join([f"kind={self.kind!r}"] + [f"{name}={value}" for name, value in self.options.items()])
