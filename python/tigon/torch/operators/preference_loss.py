"""preference_loss, from the log-probabilities of sequences to DPO and its kin."""

from typing import NamedTuple

import torch

from tigon.torch._autograd import Choice, autograd_function, nonzero
from tigon.torch._op import Op
from tigon.torch.operators.policy_loss import one_number

FUNCTIONS = ["PreferenceLossOutputs", "preference_loss"]
MODULES = ["PreferenceLoss"]

_PAIRS = "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard apo_zero apo_down discopop orpo".split()
_OTHERS = {"cpo": 0, "simpo": 0, "kto": 12, "apo_zero_unpaired": 12, "bco": 13}
_KIND = Choice("kind", **{name: i for i, name in enumerate(_PAIRS)}, **_OTHERS)
_SINGLE = 12  # and above
_WITHOUT_REF, _OF_MEANS = ("cpo", "simpo", "orpo"), ("ipo", "simpo", "orpo")


class PreferenceLossOutputs(NamedTuple):
    loss: torch.Tensor
    """f32, a scalar; the only one that has a gradient."""
    pair_loss: torch.Tensor
    """f32 [N / 2], for single sequences [N]."""
    rewards: torch.Tensor
    """f32 [N]: beta times the log-probabilities less the reference's."""
    accuracy: torch.Tensor
    """f32, a scalar: the share of pairs whose chosen sequence has the larger reward."""
    margin: torch.Tensor
    """f32, a scalar: the mean reward of the chosen sequences less that of the rejected ones."""


_MORE = "pair_loss", "rewards", "accuracy", "margin"
_fwd = Op(
    "preference_loss_fwd",
    extents={"g": "items"},
    options=("bool more",),
    when=dict.fromkeys(_MORE, lambda given: given["more"]),
)


def _forward(ctx, *args):
    """The gradients come with the loss."""
    tensors, options = args[:-1], args[-1]
    need = (ctx.needs_input_grad[0], ctx.needs_input_grad[6]) if ctx is not None else (False, False)
    loss, pair_loss, rewards, dlogps, dnll_logps, accuracy, margin = _fwd(*tensors, *options, *need)
    others = (pair_loss, rewards, accuracy, margin) if options[1] else ()
    if ctx is not None:
        ctx.save_for_backward(*[d if needed else None for d, needed in zip((dlogps, dnll_logps), need)])
        if others:
            ctx.mark_non_differentiable(*others)
    return (loss, *others) if others else loss


def _backward(ctx, dloss, *_):
    dlogps, dnll_logps = [d if d is None else d * dloss for d in ctx.saved_tensors]
    return dlogps, None, None, None, None, None, dnll_logps, None, None


_PreferenceLoss = autograd_function("preference_loss", _forward, _backward)


def refuse_kind(call, kind, ref_logps, shift):
    """What the entries cannot see, which know these kinds by other names."""
    if kind in _WITHOUT_REF and ref_logps is not None:
        raise ValueError(f"{call}: ref_logps is there, must be None with kind {kind!r}")
    if kind == "apo_zero_unpaired" and shift is not None:
        raise ValueError(f"{call}: shift is there, must be None with kind {kind!r}")


def is_of_means(kind):
    return kind in _OF_MEANS


def numbers(
    call,
    kind="sigmoid",
    beta=0.1,
    label_smoothing=0.0,
    gamma=None,
    tau=0.05,
    desirable_weight=1.0,
    undesirable_weight=1.0,
    nll_weight=1.0,
):
    """Whether the kind is of pairs, and the options of the C entries in their order."""
    weights = dict(desirable_weight=desirable_weight, undesirable_weight=undesirable_weight, nll_weight=nll_weight)
    for name, value in dict(beta=beta, tau=tau, **weights).items():
        nonzero(call, name, value)
    if gamma is None:
        gamma = 0.5 if kind == "simpo" else 0.0
    number = _KIND[kind]
    return number < _SINGLE, (number, beta, label_smoothing, gamma, tau, *weights.values())


def preference_loss(
    logps,
    ref_logps=None,
    counts=None,
    kind="sigmoid",
    *,
    labels=None,
    beta=0.1,
    label_smoothing=0.0,
    gamma=None,
    tau=0.05,
    shift=None,
    desirable_weight=1.0,
    undesirable_weight=1.0,
    denominator=None,
    nll_logps=None,
    nll_counts=None,
    nll_weight=1.0,
    outputs=False,
):
    """The mean preference loss of sequences, or with `outputs` PreferenceLossOutputs.

    The log-probabilities of a sequence's tokens add up to its element of logps [N] and ref_logps [N].
    Pairs (all kinds but the last three): the first N / 2 sequences are the chosen ones, the others the rejected ones in
    the same order. With h = beta * (l_chosen - l_rejected) - gamma, l = logps - ref_logps, `kind` is
    "sigmoid" (DPO; cDPO with label_smoothing), "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair",
    "sppo_hard", "apo_zero", "apo_down", "discopop" (with tau), or without ref_logps "cpo", "simpo" (gamma is 0.5 if
    None) and "orpo".
    Single sequences: "kto", "apo_zero_unpaired" and "bco", with labels [N], 0 or False for an undesirable sequence.
    counts [N], i32 or i64, are the tokens of each sequence. With them all l are means, which "ipo", "simpo" and "orpo"
    are of. A sequence without a token has the mean 0 and no gradient.
    shift is the KL estimate of "kto" and the mean reward of "bco" and "bco_pair"; a vector has one for each sequence or
    pair. It, and denominator, which takes the place of the number of pairs or sequences, are else numbers or tensors of
    one; nothing waits for the device.
    nll_logps [K] with nll_counts [K] add nll_weight * -nll_logps.sum() / nll_counts.sum(), as CPO and ORPO do for the
    chosen sequences. Only logps and nll_logps get gradients. The formulas are in include/tigon/op/preference_loss.h.
    """
    call = "preference_loss"
    weights = desirable_weight, undesirable_weight, nll_weight
    pairs, options = numbers(call, kind, beta, label_smoothing, gamma, tau, *weights)
    refuse_kind(call, kind, ref_logps, shift)
    if is_of_means(kind) and counts is None:
        raise ValueError(f"{call}: counts is None, must be there with kind {kind!r}, which is of means")
    if labels is not None and labels.dtype == torch.bool:
        labels = labels.int()
    items = logps.shape[0] // 2 if pairs else logps.shape[0]
    each = one_number(shift, logps, or_each=True), one_number(denominator, logps)
    logps, ref_logps, nll_logps = [t if t is None else t.float() for t in (logps, ref_logps, nll_logps)]
    options = items, outputs, *options
    found = _PreferenceLoss(logps, ref_logps, counts, labels, *each, nll_logps, nll_counts, options)
    return PreferenceLossOutputs(*found) if outputs else found


class PreferenceLoss(torch.nn.Module):
    """functional.preference_loss; the options that are no tensors are the keyword arguments."""

    def __init__(self, kind="sigmoid", **options):
        super().__init__()
        self.kind, self.options = kind, options

    def forward(self, logps, ref_logps=None, counts=None, **tensors):
        return preference_loss(logps, ref_logps, counts, self.kind, **self.options, **tensors)

    def extra_repr(self):
        return ", ".join([f"kind={self.kind!r}"] + [f"{name}={value}" for name, value in self.options.items()])
