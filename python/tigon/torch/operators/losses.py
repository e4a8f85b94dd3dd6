"""cross_entropy, and fused_linear_cross_entropy, which never holds the logits."""

import math
from typing import NamedTuple

import torch

from tigon.torch._autograd import Choice, function, like, lowered, nonzero, rows
from tigon.torch._derived import derived
from tigon.torch._op import written_op

FUNCTIONS = ["CrossEntropyOutputs", "cross_entropy", "cross_entropy_outputs", "fused_linear_cross_entropy"]
MODULES = ["CrossEntropyLoss", "FusedLinearCrossEntropyLoss"]

_NONE = 2
_REDUCTION = Choice("reduction", mean=0, sum=1, none=_NONE)
_OPTIONS = (
    "bool options_has_ignore_index, int options_ignore_index, float options_label_smoothing,"
    " float options_lse_square_scale, float options_softcap, float options_temperature, int options_reduction"
)


def _options(call, ignore_index, label_smoothing, lse_square_scale, softcap, temperature, reduction, *more):
    return (
        ignore_index is not None,
        ignore_index or 0,
        label_smoothing,
        lse_square_scale,
        0.0 if softcap is None else nonzero(call, "softcap", softcap),
        nonzero(call, "temperature", temperature),
        _REDUCTION[reduction],
        *more,
    )


def _check_target(call, x, labels):
    """One label per row of x [..., V]: x's shape without the last dimension, or flat."""
    rows, found = tuple(x.shape[:-1]), tuple(labels.shape)
    if not all(type(n) is int for n in (*rows, *found)):
        return  # torch.compile's symbols; the call itself will have numbers
    right = {rows, (math.prod(rows),)}
    if found in right:
        return
    must = " or ".join(str(list(shape)) for shape in sorted(right, key=len, reverse=True))
    sentence = f"{call}: target.shape is {list(found)}, must be {must} (one for each row)"
    if x.ndim > 2 and found == (x.shape[0], *x.shape[2:]):
        sentence += "; the classes are the last dimension: .movedim(1, -1) puts torch's second one there"
    raise ValueError(sentence)


def _loss(labels, reduction):
    """(loss, token_loss), one of which a reduction has."""
    token = reduction == _NONE
    made = torch.empty(labels.shape if token else (), dtype=torch.float32, device=labels.device)
    return (None, made) if token else (made, None)


def _given(loss, token_loss, reduction):
    return token_loss if reduction == _NONE else loss


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


@written_op(
    "cross_entropy_fwd(Tensor logits, Tensor labels, Tensor? options_weight, Tensor? options_token_scale,"
    f" {_OPTIONS}, bool more) -> (Tensor out_loss, Tensor out_token_loss, Tensor out_lse, Tensor out_z_loss,"
    " Tensor out_entropy, Tensor out_argmax, Tensor out_correct)"
)
def _cross_entropy_fwd(logits, labels, weight, token_scale, *options):
    *_, reduction, more = options
    _check_target("cross_entropy", logits, labels)
    if not more:
        return *_loss(labels, reduction), rows(logits), None, None, None, None
    token = torch.empty(labels.shape, dtype=torch.float32, device=labels.device)
    argmax = torch.empty_like(token, dtype=torch.int64)
    correct = torch.empty((), dtype=torch.int64, device=labels.device)
    return *_loss(labels, reduction), rows(logits), token, torch.empty_like(token), argmax, correct


@written_op(
    "cross_entropy_bwd(Tensor logits, Tensor labels, Tensor? options_weight, Tensor? options_token_scale, Tensor lse,"
    f" Tensor dloss, {_OPTIONS}) -> Tensor dlogits"
)
def _cross_entropy_bwd(logits, *_):
    return (torch.empty_like(logits),)


def _cross_entropy(returned):
    ops = _cross_entropy_fwd, _cross_entropy_bwd
    return derived("cross_entropy", *ops, (returned,), taken=torch.Tensor.contiguous)


_CrossEntropy, _CrossEntropyEach = _cross_entropy("loss"), _cross_entropy("token_loss")


@function("cross_entropy", _cross_entropy_fwd, _cross_entropy_bwd, taken=torch.Tensor.contiguous)
def _CrossEntropyOutputs(fwd, bwd):
    def forward(ctx, logits, labels, extra):
        weight, token_scale, options = extra
        outputs = fwd(logits, labels, weight, token_scale, *options, True)
        ctx.save_for_backward(logits, labels, weight, token_scale)
        ctx.lse, ctx.options = outputs[2], options
        ctx.mark_non_differentiable(*outputs[3:])
        return outputs[options[-1] == _NONE], *outputs[3:]

    def backward(ctx, dloss, *_):
        return bwd(*ctx.saved_tensors, ctx.lse, dloss, *ctx.options), None, None

    return forward, backward


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
    call = "cross_entropy"
    options = _options(call, ignore_index, label_smoothing, lse_square_scale, softcap, temperature, reduction, False)
    over = _CrossEntropyEach if reduction == "none" else _CrossEntropy
    return over(logits, target, weight, token_scale, options)


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
    call = "cross_entropy"
    options = _options(call, ignore_index, label_smoothing, lse_square_scale, softcap, temperature, reduction)
    return CrossEntropyOutputs(*_CrossEntropyOutputs(logits, target, (weight, token_scale, options)))


_GRADIENTS = "bool need_dhidden, bool need_dweight, bool need_dbias"


def _gradients(hidden, weight, bias, need):
    return tuple(like(t, needed) for t, needed in zip((hidden, weight, bias), need))


@written_op(
    "fused_linear_cross_entropy_fwd(Tensor hidden, Tensor weight, Tensor? bias, Tensor labels, Tensor? options_weight,"
    f" Tensor? options_token_scale, int workspace_bytes, {_OPTIONS}, {_GRADIENTS})"
    " -> (Tensor out_loss, Tensor out_token_loss, Tensor dhidden, Tensor dweight, Tensor dbias)"
)
def _fused_fwd(hidden, weight, bias, labels, *options):
    *_, reduction, need_dhidden, need_dweight, need_dbias = options
    _check_target("fused_linear_cross_entropy", hidden, labels)
    return *_loss(labels, reduction), *_gradients(hidden, weight, bias, options[-3:])


@written_op(
    "fused_linear_cross_entropy_bwd(Tensor hidden, Tensor weight, Tensor? bias, Tensor labels, Tensor? options_weight,"
    f" Tensor? options_token_scale, Tensor dloss, int workspace_bytes, {_OPTIONS}, {_GRADIENTS})"
    " -> (Tensor dhidden, Tensor dweight, Tensor dbias)"
)
def _fused_bwd(hidden, weight, bias, *options):
    return _gradients(hidden, weight, bias, options[-3:])


@function("fused_linear_cross_entropy", _fused_fwd, _fused_bwd, taken=torch.Tensor.contiguous)
def _FusedLinearCrossEntropy(fwd, bwd):
    """Makes the gradients with the loss, which saves backward the GEMM of the logits, where it may: `early`. They are
    then scaled by dloss, once and in place; a second backward makes them anew."""

    def forward(ctx, hidden, weight, bias, labels, class_weight, token_scale, early, options):
        ctx.need = need = ctx.needs_input_grad[:3]
        loss, token_loss, *gradients = fwd(
            hidden, weight, bias, labels, class_weight, token_scale, *options, *(early and needed for needed in need)
        )
        ctx.save_for_backward(hidden, weight, bias, labels, class_weight, token_scale)
        ctx.options, ctx.gradients = options, gradients if early else None
        return _given(loss, token_loss, options[-1])

    def backward(ctx, dloss):
        if ctx.gradients is None:
            gradients = bwd(*ctx.saved_tensors, dloss, *ctx.options, *ctx.need)
        elif torch.compiler.is_compiling():
            gradients = [g * dloss for g in ctx.gradients]
        else:
            gradients, ctx.gradients = ctx.gradients, None
            if dloss.is_cpu and dloss == 1:
                dloss = None
            for g, needed in zip(gradients, ctx.need):
                if needed and dloss is not None:
                    g.mul_(dloss)
        return *[g if needed else None for g, needed in zip(gradients, ctx.need)], None, None, None, None, None

    return forward, backward


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
    call = "fused_linear_cross_entropy"
    options = _options(call, ignore_index, label_smoothing, lse_square_scale, softcap, temperature, reduction)
    hidden, weight, bias = lowered(hidden, weight, bias)
    early = torch.is_grad_enabled() and reduction != "none" and getattr(hidden, "dtype", None) != torch.float16
    granted = 0 if workspace_bytes is None else nonzero(call, "workspace_bytes", workspace_bytes)
    return _FusedLinearCrossEntropy(
        hidden, weight, bias, target, class_weight, token_scale, early, (granted, *options)
    )


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
