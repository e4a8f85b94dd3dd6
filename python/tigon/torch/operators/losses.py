"""cross_entropy, and fused_linear_cross_entropy, which never holds the logits."""

import math
from typing import NamedTuple

import torch

from tigon.torch._autograd import Choice, autograd_function, lowered, nonzero
from tigon.torch._derived import derived
from tigon.torch._op import Op

FUNCTIONS = ["CrossEntropyOutputs", "cross_entropy", "cross_entropy_outputs", "fused_linear_cross_entropy"]
MODULES = ["CrossEntropyLoss", "FusedLinearCrossEntropyLoss"]

_NONE = 2
_REDUCTION = Choice("reduction", mean=0, sum=1, none=_NONE)


def _options(call, first, ignore_index, label_smoothing, lse_square_scale, softcap, temperature, reduction):
    return (
        first,
        ignore_index is not None,
        ignore_index or 0,
        label_smoothing,
        lse_square_scale,
        0.0 if softcap is None else nonzero(call, "softcap", softcap),
        nonzero(call, "temperature", temperature),
        _REDUCTION[reduction],
    )


def _check_target(op, given):
    """One label per row of x [..., V]: x's shape without the last dimension, or flat."""
    x, labels = given["logits" if "logits" in given else "hidden"], given["labels"]
    rows, found = tuple(x.shape[:-1]), tuple(labels.shape)
    if not all(type(n) is int for n in (*rows, *found)):
        return  # torch.compile's symbols; the call itself will have numbers
    right = {rows, (math.prod(rows),)}
    if found in right:
        return
    must = " or ".join(str(list(shape)) for shape in sorted(right, key=len, reverse=True))
    call = op.name.removesuffix("_fwd")
    sentence = f"{call}: target.shape is {list(found)}, must be {must} (one for each row)"
    if x.ndim > 2 and found == (x.shape[0], *x.shape[2:]):
        sentence += "; the classes are the last dimension: .movedim(1, -1) puts torch's second one there"
    raise ValueError(sentence)


class CrossEntropyOutputs(NamedTuple):
    loss: torch.Tensor
    """f32: a scalar, or with reduction "none" one for each token. The one that has a gradient."""
    z_loss: torch.Tensor
    """f32, one for each token: lse_square_scale * lse^2."""
    entropy: torch.Tensor
    """f32, one for each token: that of softmax(logits), in nats."""
    argmax: torch.Tensor
    """i64, one for each token: the likeliest, -1 where the target is ignored."""
    correct: torch.Tensor
    """i64, a scalar: how many tokens count and have their target as argmax."""


_each = lambda given: given["options_reduction"] == _NONE
_LOSS = {"out_loss": lambda given: not _each(given), "out_token_loss": _each}
_MORE = dict.fromkeys(("out_z_loss", "out_entropy", "out_argmax", "out_correct"), lambda given: given["more"])
_cross_entropy_fwd = Op(
    "cross_entropy_fwd",
    without=("dlogits", "dloss"),
    options=("bool more",),
    when=_LOSS | _MORE,
    check=_check_target,
)
_cross_entropy_bwd = Op("cross_entropy_bwd", required=("dloss",))


def _cross_entropy(*others):
    """By whether it is that of each token, the loss; the other outputs have no gradient."""
    pair = "cross_entropy", _cross_entropy_fwd, _cross_entropy_bwd
    losses = {False: "loss", True: "token_loss"}
    return {each: derived(*pair, returned=(loss, *others), others=others) for each, loss in losses.items()}


_LOSSES, _OUTPUTS = _cross_entropy(), _cross_entropy("z_loss", "entropy", "argmax", "correct")


def cross_entropy(
    logits,
    target,
    weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    token_scale=None,
):
    """The cross entropy of logits [..., V] and target [...], or [rows], the vocabulary being the last dimension.

    torch's layout [B, V, ...] comes here as logits.movedim(1, -1).

    With z = softcap * tanh(u / softcap), u = logits / temperature and lse = log sum exp z, a token's loss is
        token_scale * ((1 - s) * weight[t] * (lse - z[t]) + s / V * sum_v weight[v] * (lse - z[v])
                       + weight[t] * lse_square_scale * lse^2),   s = label_smoothing,
    and 0 where the target is ignore_index (None: no such target). "mean" divides the sum by that of weight[t] over the
    tokens that count. logits f32, bf16 or f16; target i64 or i32; weight [V] and token_scale [...] f32.
    The loss is f32, computed in f32, under autocast too. Only the logits get a gradient.
    """
    options = ignore_index, label_smoothing, lse_square_scale, softcap, temperature, reduction
    options = _options("cross_entropy", False, *options)
    return _LOSSES[reduction == "none"](logits, target, weight, token_scale, options)


def cross_entropy_outputs(
    logits,
    target,
    weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    token_scale=None,
):
    """cross_entropy, and what else the same pass over the logits tells: CrossEntropyOutputs."""
    options = ignore_index, label_smoothing, lse_square_scale, softcap, temperature, reduction
    options = _options("cross_entropy", True, *options)
    return CrossEntropyOutputs(*_OUTPUTS[reduction == "none"](logits, target, weight, token_scale, options))


_NAME = "fused_linear_cross_entropy"
_OTHERS = "out_lse", "out_z_loss", "out_entropy", "out_argmax", "out_correct"
_fused_fwd = Op(
    f"{_NAME}_fwd",
    without=("dloss", *_OTHERS),
    options=("int workspace_bytes",),
    when=_LOSS,
    check=_check_target,
)
_fused_bwd = Op(
    f"{_NAME}_bwd",
    without=("out_loss", "out_token_loss", *_OTHERS),
    required=("dloss",),
    options=("int workspace_bytes",),
)


def _forward(ctx, hidden, weight, bias, labels, class_weight, token_scale, early, options):
    """Makes the gradients with the loss, which saves backward the GEMM of the logits, where it may: `early`. They are
    then scaled by dloss, once and in place; a second backward makes them anew."""
    inputs = hidden, weight, bias, labels, class_weight, token_scale
    need = ctx.needs_input_grad[:3] if early else (False,) * 3
    loss, token_loss, *gradients = _fused_fwd(*inputs, *options, *need)
    if ctx is not None:
        ctx.save_for_backward(*inputs)
        ctx.options, ctx.gradients = options, gradients if early else None
    return token_loss if options[-1] == _NONE else loss


def _backward(ctx, dloss):
    need = ctx.needs_input_grad[:3]
    if ctx.gradients is None:
        gradients = _fused_bwd(*ctx.saved_tensors, dloss, *ctx.options, *need)
    elif torch.compiler.is_compiling():
        gradients = [g * dloss for g in ctx.gradients]
    else:
        gradients, ctx.gradients = ctx.gradients, None
        if dloss.is_cpu and dloss == 1:
            dloss = None
        for g, needed in zip(gradients, need):
            if needed and dloss is not None:
                g.mul_(dloss)
    return *[g if needed else None for g, needed in zip(gradients, need)], None, None, None, None, None


_FusedLinearCrossEntropy = autograd_function(_NAME, _forward, _backward)


def fused_linear_cross_entropy(
    hidden,
    weight,
    target,
    bias=None,
    class_weight=None,
    ignore_index=-100,
    reduction="mean",
    label_smoothing=0.0,
    lse_square_scale=0.0,
    softcap=None,
    temperature=1.0,
    token_scale=None,
    workspace_bytes=None,
):
    """cross_entropy(hidden @ weight.T + bias, target, ...) without ever holding the logits.

    hidden [..., H], weight [V, H] and bias [V] of one dtype, f32, bf16 or f16 (under autocast, autocast's own; bias may
    be f32); target [...] or [rows] i64 or i32. class_weight is cross_entropy's weight; the other options are its own.
    Chunks of tokens are worked off in workspace_bytes of memory, None for what the library recommends. Gradients of
    mean and sum are made with the loss; those of "none" and of f16, whose loss is scaled, in backward, from the logits
    made again.
    """
    granted = 0 if workspace_bytes is None else nonzero(_NAME, "workspace_bytes", workspace_bytes)
    options = _options(_NAME, granted, ignore_index, label_smoothing, lse_square_scale, softcap, temperature, reduction)
    hidden, weight, bias = lowered(hidden, weight, bias)
    early = torch.is_grad_enabled() and reduction != "none" and getattr(hidden, "dtype", None) != torch.float16
    return _FusedLinearCrossEntropy(hidden, weight, bias, target, class_weight, token_scale, early, options)


class _Loss(torch.nn.Module):
    def __init__(self, weight=None, **options):
        super().__init__()
        self.register_buffer("weight", weight)
        self.options = options


class CrossEntropyLoss(_Loss):
    """functional.cross_entropy; its options are the keyword arguments."""

    def forward(self, logits, target):
        return cross_entropy(logits, target, self.weight, **self.options)


class FusedLinearCrossEntropyLoss(_Loss):
    """functional.fused_linear_cross_entropy; its options are the keyword arguments, `weight` that of the classes."""

    def forward(self, hidden, weight, target, bias=None):
        return fused_linear_cross_entropy(hidden, weight, target, bias, class_weight=self.weight, **self.options)
