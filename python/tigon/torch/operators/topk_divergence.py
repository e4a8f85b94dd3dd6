"""topk_divergence, of a student's distribution from a teacher of which k entries a row are known."""

import torch

from tigon.torch._autograd import Choice, nonzero
from tigon.torch._derived import derived
from tigon.torch._op import Op
from tigon.torch.operators.losses import _LOSS, _REDUCTION, _denominator

FUNCTIONS = ["topk_divergence"]
MODULES = ["TopKDivergence"]

_KIND = Choice("kind", kl=0, reverse_kl=1, jsd=2, tvd=3)
_TARGET_IS = Choice("target_is", logits=0, log_probs=1, probs=2)

_fwd = Op("topk_divergence_fwd", without=("dinput", "dloss", "out_error"), when=_LOSS)
_bwd = Op("topk_divergence_bwd", without=("error",), required=("dloss",))
_Divergence, _Divergences = (
    derived("topk_divergence", _fwd, _bwd, returned=(name,)) for name in ("loss", "token_loss")
)


def topk_divergence(
    input,
    target,
    target_ids,
    kind="kl",
    labels=None,
    ignore_index=-100,
    reduction="mean",
    target_is="log_probs",
    tail=False,
    least_tail=0.0,
    beta=0.5,
    temperature=1.0,
    token_scale=None,
    denominator=None,
    by_temperature_squared=False,
):
    """How far softmax(input / temperature) is from a teacher, of whose rows k entries are known.

    target [..., k] holds the entries, and target_ids [..., k] i64 or i32 their classes. input [..., V] is f32, bf16 or
    f16, target as input or f32.

    target is "log_probs" or "probs", which are taken as they are, or "logits", whose softmax over the k entries is the
    whole teacher. Of entries of one class the first one counts, so that a list is padded with classes that it has. All
    other columns are one class, the tail: its p is what the entries leave of 1, least_tail at least. "kl" sums over the
    entries, and with `tail` over the tail, too; "reverse_kl", "jsd" and "tvd" always do. "reverse_kl" is infinite where the
    entries add up to 1: least_tail helps. An id out of the vocabulary is an error, in rows that do not count as well. kind,
    labels, reduction and the other arguments are those of divergence. Only the input gets a gradient.
    """
    options = _KIND[kind], _TARGET_IS[target_is], beta, nonzero("topk_divergence", "temperature", temperature)
    reduction = "mean" if reduction == "batchmean" else reduction
    options = *options, ignore_index, _REDUCTION[reduction], bool(by_temperature_squared), bool(tail), least_tail
    each = _Divergences if reduction == "none" else _Divergence
    return each(input, target, target_ids, labels, token_scale, _denominator(input, denominator), options)


class TopKDivergence(torch.nn.Module):
    """functional.topk_divergence; its options are the keyword arguments."""

    def __init__(self, kind="kl", **options):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(self, input, target, target_ids, labels=None):
        return topk_divergence(input, target, target_ids, self.kind, labels, **self.options)

    def extra_repr(self):
        return ", ".join([self.kind, *(f"{name}={value}" for name, value in self.options.items())])
