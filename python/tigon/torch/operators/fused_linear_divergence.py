"""fused_linear_divergence: distillation from hidden states, which never holds the logits of student or teacher."""

from typing import NamedTuple

import torch

from tigon.torch._autograd import lowered, nonzero
from tigon.torch._heads import early_head, may_be_early
from tigon.torch._op import Op
from tigon.torch.operators.divergence import _KIND
from tigon.torch.operators.losses import _denominator

FUNCTIONS = ["FusedLinearDivergenceOutputs", "fused_linear_divergence"]
MODULES = ["FusedLinearDivergence"]


class FusedLinearDivergenceOutputs(NamedTuple):
    loss: torch.Tensor
    """f32, a scalar; the only one that has a gradient."""
    soft_loss: torch.Tensor
    """f32, a scalar: the mean divergence."""
    hard_loss: torch.Tensor
    """f32, a scalar: the mean cross entropy; 0 where weight_hard is."""
    token_loss: torch.Tensor
    """f32, one for each token: both by their weights and token_scale; 0 where a token does not count."""


_NAME = "fused_linear_divergence"
_METRICS = "soft_loss", "hard_loss", "token_loss"
_fwd = Op(
    f"{_NAME}_fwd",
    options=("bool more", "int workspace_bytes"),
    when=dict.fromkeys(_METRICS, lambda given: given["more"]),
)
_FusedLinearDivergence = early_head(_NAME, _fwd, tensors=10, bias=2, metrics=len(_METRICS))


def _logit_map(call, of, softcap, logit_scale):
    cap = 0.0 if softcap is None else nonzero(call, f"{of}softcap", softcap)
    return cap, nonzero(call, f"{of}logit_scale", logit_scale)


def fused_linear_divergence(
    hidden,
    weight,
    teacher_hidden,
    teacher_weight,
    bias=None,
    teacher_bias=None,
    labels=None,
    *,
    kind="kl",
    ignore_index=-100,
    beta=0.5,
    temperature=1.0,
    softcap=None,
    logit_scale=1.0,
    teacher_softcap=None,
    teacher_logit_scale=1.0,
    weight_soft=1.0,
    weight_hard=0.0,
    token_scale=None,
    denominator=None,
    by_temperature_squared=False,
    truncate_teacher=False,
    logits_in_f32=False,
    workspace_bytes=None,
    outputs=False,
):
    """The mean over tokens of weight_soft * divergence(student's logits, teacher's logits) + weight_hard *
    cross_entropy(student's logits, labels), without ever holding either logits, or with `outputs`
    FusedLinearDivergenceOutputs.

    hidden [..., H], weight [V, H] and bias [V] are the student's, of one dtype, f32, bf16 or f16 (under autocast,
    autocast's own; biases may be f32). teacher_hidden [..., H'], teacher_weight [V', H'] and teacher_bias [V'] are
    taken in that dtype and get no gradient. kind, beta, temperature and by_temperature_squared are divergence's; the
    cross entropy knows no temperature. Of a product u the student's logit is softcap * tanh(u * logit_scale / softcap),
    with None u * logit_scale, before the temperature; the teacher has a softcap and a scale of its own. labels [...] or [N] i64 or i32: a token whose label is ignore_index does not
    count; None, without weight_hard alone: all do. token_scale as labels, f32. The mean is over the tokens that count,
    or the sum divided by `denominator`. A teacher of fewer classes gives the others a probability of 0; of one with
    more truncate_teacher leaves out those beyond V. With logits_in_f32 no product is rounded to 16 bits.
    Gradients are made with the loss, in three matrix products and the teacher's one; those of f16, whose loss is
    scaled, in backward. workspace_bytes is None for what the library recommends.
    """
    granted = 0 if workspace_bytes is None else nonzero(_NAME, "workspace_bytes", workspace_bytes)
    options = (
        *(outputs, granted, _KIND[kind], beta, nonzero(_NAME, "temperature", temperature)),
        *_logit_map(_NAME, "", softcap, logit_scale),
        *_logit_map(_NAME, "teacher_", teacher_softcap, teacher_logit_scale),
        *(nonzero(_NAME, "weight_soft", weight_soft), weight_hard, ignore_index is not None, ignore_index or 0),
        *(bool(by_temperature_squared), bool(truncate_teacher), bool(logits_in_f32)),
    )
    hidden, weight, bias = lowered(hidden, weight, bias)
    teacher_hidden, teacher_weight = [t.detach().to(hidden.dtype) for t in (teacher_hidden, teacher_weight)]
    if teacher_bias is not None:
        teacher_bias = teacher_bias.detach()
        if teacher_bias.dtype != torch.float32:
            teacher_bias = teacher_bias.to(hidden.dtype)
    inputs = hidden, weight, bias, teacher_hidden, teacher_weight, teacher_bias, labels, token_scale
    found = _FusedLinearDivergence(
        *inputs, _denominator(hidden, denominator), outputs, may_be_early(hidden), options
    )
    if not outputs:
        return found
    loss, soft_loss, hard_loss, token_loss = found
    return FusedLinearDivergenceOutputs(loss, soft_loss, hard_loss, token_loss.reshape(hidden.shape[:-1]))


class FusedLinearDivergence(torch.nn.Module):
    """functional.fused_linear_divergence; the options that are no tensors are the keyword arguments."""

    def __init__(self, kind="kl", **options):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(
        self, hidden, weight, teacher_hidden, teacher_weight, bias=None, teacher_bias=None, labels=None, **tensors
    ):
        inputs = hidden, weight, teacher_hidden, teacher_weight, bias, teacher_bias, labels
        return fused_linear_divergence(*inputs, kind=self.kind, **self.options, **tensors)

    def extra_repr(self):
        return ", ".join([f"kind={self.kind!r}"] + [f"{name}={value}" for name, value in self.options.items()])
