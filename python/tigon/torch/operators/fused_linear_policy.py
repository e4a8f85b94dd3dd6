"""fused_linear_policy: GRPO and its kin from the hidden states of sampled tokens, which never holds the logits."""

import torch

from tigon.torch._autograd import lowered, nonzero
from tigon.torch._heads import early_head, head_options, may_be_early
from tigon.torch._op import Op
from tigon.torch.operators.losses import _check_target
from tigon.torch.operators.policy_loss import METRICS, PolicyLossOutputs, each, numbers, one_number

FUNCTIONS = ["fused_linear_policy"]
MODULES = ["FusedLinearPolicyLoss"]

_NAME = "fused_linear_policy"
_fwd = Op(
    f"{_NAME}_fwd",
    without=("entropy",),
    options=("bool more", "int workspace_bytes"),
    when=dict.fromkeys(METRICS, lambda given: given["more"]),
    check=_check_target,
)
_FusedLinearPolicy = early_head(_NAME, _fwd, tensors=11, bias=4, metrics=1 + len(METRICS))


def fused_linear_policy(
    hidden,
    weight,
    target,
    advantage,
    bias=None,
    segments=None,
    *,
    old=None,
    ref=None,
    ratio=None,
    denominator=None,
    ignore_index=-100,
    softcap=None,
    temperature=1.0,
    softcap_first=False,
    workspace_bytes=None,
    logits_in_f32=False,
    outputs=False,
    **options,
):
    """policy_loss of linear_logprob(hidden, weight, target, bias) and its entropy, without ever holding the logits, or
    with `outputs` PolicyLossOutputs.

    hidden [B, T, H], or [N, H] with segments [S + 1], weight [V, H] and bias [V] of one dtype, f32, bf16 or f16 (under
    autocast, autocast's own; bias may be f32); target [B, T] or [N] i64 or i32. A token counts where its target is not
    ignore_index. old, ref, advantage, ratio and denominator are policy_loss's, and so are the `options`: kind, level,
    eps_low and what follows it there. Its loss of the entropy has a gradient here without an argument.
    Gradients are made with the loss; those of f16, whose loss is scaled, in backward. At token level they take three
    matrix products, and so they do where whole sequences fit into workspace_bytes of memory. None there is what the
    library recommends.
    """
    shape = target.shape
    sequences = hidden.shape[0] if segments is None else segments.shape[0] - 1
    (advantage, of_tokens), (ratio, ratio_of_tokens) = each(advantage, sequences), each(ratio, sequences)
    old, ref = [t if t is None else t.detach().float().reshape(-1) for t in (old, ref)]
    granted = 0 if workspace_bytes is None else nonzero(_NAME, "workspace_bytes", workspace_bytes)
    options = (
        *(outputs, granted, *numbers(_NAME, of_tokens, ratio_of_tokens, **options)),
        *head_options(_NAME, ignore_index, softcap, temperature, softcap_first, logits_in_f32),
    )
    hidden, weight, bias = lowered(hidden, weight, bias)
    inputs = hidden, weight, target, advantage, bias, segments, old, ref, ratio, one_number(denominator, hidden)
    found = _FusedLinearPolicy(*inputs, outputs, may_be_early(hidden), options)
    if not outputs:
        return found
    loss, _, token_loss, *metrics = found
    return PolicyLossOutputs(loss, token_loss.reshape(shape), *metrics)


class FusedLinearPolicyLoss(torch.nn.Module):
    """functional.fused_linear_policy; the options that are no tensors are the keyword arguments."""

    def __init__(self, kind="dapo", **options):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(self, hidden, weight, target, advantage, bias=None, segments=None, **tensors):
        inputs = hidden, weight, target, advantage, bias, segments
        return fused_linear_policy(*inputs, kind=self.kind, **self.options, **tensors)

    def extra_repr(self):
        return ", ".join([f"kind={self.kind!r}"] + [f"{name}={value}" for name, value in self.options.items()])
