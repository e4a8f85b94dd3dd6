"""divergence, of a student's distribution from a teacher's."""

import torch

from tigon.torch._autograd import Choice, nonzero
from tigon.torch._derived import derived
from tigon.torch._early import early, is_early
from tigon.torch._op import Op
from tigon.torch.operators.losses import _LOSS, _REDUCTION, _denominator

FUNCTIONS = ["divergence"]
MODULES = ["Divergence"]

_KIND = Choice("kind", kl=0, reverse_kl=1, jsd=2, tvd=3, cosine=4)
_INPUT_IS = Choice("input_is", logits=0, log_probs=1, probs=2)
_TARGET_IS = Choice("target_is", **_INPUT_IS)

_fwd = Op("divergence_fwd", without=("dinput", "dloss"), when=_LOSS)
_bwd = Op("divergence_bwd", required=("dloss",))
_with_gradient = Op(
    "divergence_with_gradient", "divergence_fwd", without=("dloss", "out_token_loss", "out_stats")
)
_early = early("divergence", _with_gradient)
_Divergence, _Divergences = (derived("divergence", _fwd, _bwd, returned=(name,)) for name in ("loss", "token_loss"))


def divergence(
    input,
    target,
    kind="kl",
    labels=None,
    ignore_index=-100,
    reduction="mean",
    input_is="logits",
    target_is="logits",
    beta=0.5,
    temperature=1.0,
    token_scale=None,
    denominator=None,
    by_temperature_squared=False,
):
    """How far the distributions q that input [..., V] says are from those p that target says.

    kind "kl" is KL(p || q), "reverse_kl" KL(q || p), "jsd" beta KL(p || m) + (1 - beta) KL(q || m) with
    m = beta p + (1 - beta) q, where beta 0 is "kl" and 1 "reverse_kl", "tvd" half the sum of |p - q|, and "cosine"
    1 - the cosine of input and target as they are. Either is "logits", of which the temperature is, "log_probs" or
    "probs". 0 log 0 is 0. Rows whose label is ignore_index count for nothing.

    "mean", also named "batchmean", divides the sum by the number of rows that count. With `denominator` it divides by
    that, a number or a tensor of one element on any device. torch's kl_div of "mean" divides by V besides.
    by_temperature_squared multiplies by temperature^2.

    input f32, bf16 or f16, target as input; labels [...] or [rows] i64 or i32; token_scale [...] f32. The loss is f32,
    computed in f32, under autocast too. Only the input gets a gradient. That of mean and sum is made with the loss, as
    cross_entropy's is.
    """
    options = _KIND[kind], _INPUT_IS[input_is], _TARGET_IS[target_is], beta
    reduction = "mean" if reduction == "batchmean" else reduction
    options = *options, nonzero("divergence", "temperature", temperature), ignore_index, _REDUCTION[reduction]
    options = *options, bool(by_temperature_squared)
    inputs = input, target, labels, token_scale, _denominator(input, denominator), options
    if reduction != "none" and is_early(input):
        return _early(*inputs)
    return (_Divergences if reduction == "none" else _Divergence)(*inputs)


class Divergence(torch.nn.Module):
    """functional.divergence; its options are the keyword arguments."""

    def __init__(self, kind="kl", **options):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(self, input, target, labels=None):
        return divergence(input, target, self.kind, labels, **self.options)

    def extra_repr(self):
        return ", ".join([self.kind, *(f"{name}={value}" for name, value in self.options.items())])
