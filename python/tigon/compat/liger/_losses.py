"""Liger-Kernel's two cross entropies, with what they return besides the loss."""

import functools
from dataclasses import dataclass

import torch
from torch import nn

from ...torch import functional as F
from ...torch._autograd import lowered


class LigerError(AssertionError, ValueError):
    """A refused argument: Liger-Kernel's AssertionError, and the ValueError of Tigon's own functions."""


def require(condition, sentence):
    if not condition:
        raise LigerError(sentence)


def asserting(function):
    """The function, whose ValueErrors are LigerErrors; that of a label has Liger-Kernel's words, too."""

    @functools.wraps(function)
    def run(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except ValueError as error:
            raise LigerError(f"{error}{' (out of bounds)' if ' labels[' in str(error) else ''}") from error

    return run


def check_loss_options(label_smoothing, reduction, softcap):
    require(0 <= label_smoothing <= 1, f"label_smoothing is {label_smoothing}, must be 0 to 1")
    require(reduction in ("mean", "sum", "none"), f"reduction is {reduction!r}, must be 'mean', 'sum' or 'none'")
    require(softcap is None or softcap > 0, f"softcap is {softcap}, must be None or greater than 0")


@dataclass
class CrossEntropyOutput:
    loss: torch.Tensor
    z_loss: torch.Tensor | None = None
    token_accuracy: torch.Tensor | None = None
    predicted_tokens: torch.Tensor | None = None


def reported(outputs, *wanted):
    """The loss, or a CrossEntropyOutput if any of its other fields is wanted."""
    return CrossEntropyOutput(*outputs) if any(wanted) else outputs[0]


def _class_weight(name, weight):
    """[V] as f32, which Tigon's operators take."""
    if weight is None:
        return None
    require(weight.is_floating_point(), f"{name}.dtype is {str(weight.dtype)[6:]}, must be a floating dtype")
    return weight.float()


def _capped(logits, softcap):
    return logits if softcap is None else softcap * torch.tanh(logits / softcap)


def _over_tokens(each, reduction, counted):
    """`each` [...] f32, 0 where a token is ignored; the mean is over the tokens that count, 0 if none does."""
    if reduction == "none":
        return each
    return each.sum() if reduction == "sum" else each.sum() / counted.sum().clamp(min=1)


def _accuracy(argmax, target, counted, reduction):
    """The share of tokens that count; NaN if none does, as in Liger-Kernel."""
    right = ((argmax == target) & counted).float()
    return right if reduction == "none" else right.sum() / counted.sum()


class LigerCrossEntropyFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        target,
        weight,
        ignore_index=-100,
        lse_square_scale=0.0,
        label_smoothing=0.0,
        reduction="mean",
        softcap=None,
        return_z_loss=False,
        return_token_accuracy=False,
        return_predicted_tokens=False,
    ):
        """(loss, z_loss, token_accuracy, predicted_tokens), None for each that is not wanted.

        The z-loss has no class weight, and its mean is over the tokens that count. Tigon's operator weights it, so with
        class weights it comes from a second pass over the logits."""
        check_loss_options(label_smoothing, reduction, softcap)
        weight = _class_weight("weight", weight)
        apart = weight is not None and lse_square_scale != 0
        scale = 0.0 if apart else lse_square_scale
        arguments = (_input, target, weight, ignore_index, reduction, label_smoothing, scale, softcap)
        if not (apart or return_z_loss or return_token_accuracy or return_predicted_tokens):
            return F.cross_entropy(*arguments).to(_input.dtype), None, None, None
        outputs = F.cross_entropy_outputs(*arguments)
        loss, argmax, counted = outputs.loss, outputs.argmax, target != ignore_index
        if apart:
            each = lse_square_scale * _log_sum_exp(_input, argmax, counted, softcap).square()
            z_loss = _over_tokens(each, reduction, counted)
            loss = loss + z_loss
        else:
            z_loss = _over_tokens(outputs.z_loss, reduction, counted)
        return (
            loss.to(_input.dtype),
            z_loss.detach().to(_input.dtype) if return_z_loss else None,
            _accuracy(argmax, target, counted, reduction) if return_token_accuracy else None,
            argmax if return_predicted_tokens else None,
        )


def _log_sum_exp(logits, argmax, counted, softcap):
    """Each token's lse [...] f32 with its gradient, 0 where it is ignored: the cross entropy of the likeliest class,
    which is at most log V, and that class's logit."""
    short = F.cross_entropy(logits, argmax.where(counted, -100), reduction="none", softcap=softcap)
    largest = logits.gather(-1, argmax.clamp(min=0).unsqueeze(-1)).squeeze(-1).float()
    return short + _capped(largest, softcap).where(counted, 0.0)


class LigerFusedLinearCrossEntropyFunction:
    @staticmethod
    @asserting
    def apply(
        _input,
        weight,
        target,
        bias=None,
        ce_weight=None,
        ignore_index=-100,
        lse_square_scale=0.0,
        label_smoothing=0.0,
        reduction="mean",
        softcap=None,
        return_z_loss=False,
        accum_dtype=None,
        use_token_scaling=False,
        return_token_accuracy=False,
        return_predicted_tokens=False,
        ce_impl=None,
        ce_mode=None,
        chunk_mem_const=1,
    ):
        """(loss, z_loss, token_accuracy, predicted_tokens), None for each that is not wanted.

        Tigon's operator gives the loss. What each token has besides (z-loss, likeliest class, the probability by which
        use_token_scaling multiplies its loss) takes one more product of the head without gradient, in chunks. Class
        weights with a z-loss take a second call of the operator, for the z-loss."""
        check_loss_options(label_smoothing, reduction, softcap)
        ce_weight = _class_weight("ce_weight", ce_weight)
        hidden, weight, bias = lowered(_input, weight, bias)
        counted = target != ignore_index
        apart = ce_weight is not None and lse_square_scale != 0
        tokens, token_scale, z_loss = None, None, None
        if use_token_scaling or return_token_accuracy or return_predicted_tokens or (return_z_loss and not apart):
            tokens = _Tokens.of(hidden, weight, target, bias, ignore_index, lse_square_scale, softcap)
        if use_token_scaling:
            token_scale = torch.exp(-tokens.loss)
        loss = F.fused_linear_cross_entropy(
            hidden,
            weight,
            target,
            bias,
            ce_weight,
            ignore_index,
            reduction,
            label_smoothing,
            0.0 if apart else lse_square_scale,
            softcap,
            token_scale=token_scale,
        )
        if apart or return_z_loss:
            if apart:
                lse = _log_sum_exp_of_head(hidden, weight, target, bias, ignore_index, counted, softcap)
                each = lse_square_scale * lse.square()
            else:
                each = tokens.z_loss
            z_loss = _over_tokens(each if token_scale is None else each * token_scale, reduction, counted)
        return (
            loss + z_loss if apart else loss,
            z_loss.detach().to(_input.dtype) if return_z_loss else None,
            _accuracy(tokens.argmax, target, counted, reduction) if return_token_accuracy else None,
            tokens.argmax if return_predicted_tokens else None,
        )


def _log_sum_exp_of_head(hidden, weight, target, bias, ignore_index, counted, softcap):
    """_log_sum_exp of the logits that are not there: by way of the target's class."""
    options = dict(ignore_index=ignore_index, reduction="none", softcap=softcap)
    short = F.fused_linear_cross_entropy(hidden, weight, target, bias, **options)
    classes = target.where(counted, 0)
    logit = (hidden.float() * nn.functional.embedding(classes, weight).float()).sum(-1)
    if bias is not None:
        logit = logit + bias[classes].float()
    logit = logit.to(hidden.dtype).float()  # as the operator holds its logits
    return short + _capped(logit, softcap).where(counted, 0.0)


@dataclass
class _Tokens:
    """What a head says of each token, without gradient; all [...], 0 where it is ignored, argmax -1."""

    loss: torch.Tensor
    z_loss: torch.Tensor
    argmax: torch.Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, hidden, weight, target, bias, ignore_index, lse_square_scale, softcap):
        """Chunks of logits are as large as hidden, or have 256 rows if that is more."""
        width, vocab = hidden.shape[-1], weight.shape[0]
        rows = hidden.reshape(-1, width)
        size = max(256, -(-len(rows) * width // vocab))
        options = dict(ignore_index=ignore_index, reduction="none", softcap=softcap)
        chunks = []
        for chunk, labels in zip(rows.split(size), target.reshape(-1).split(size)):
            logits = F.linear(chunk, weight, bias)
            outputs = F.cross_entropy_outputs(logits, labels, lse_square_scale=lse_square_scale, **options)
            loss = outputs.loss if lse_square_scale == 0 else F.cross_entropy(logits, labels, **options)
            chunks.append((loss, outputs.z_loss, outputs.argmax))
        return cls(*[torch.cat(column).view(target.shape) for column in zip(*chunks)])


def liger_cross_entropy(
    input,
    target,
    weight=None,
    size_average=None,
    ignore_index: int = -100,
    reduce=None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    lse_square_scale: float = 0.0,
    softcap: float | None = None,
    return_z_loss: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
):
    """The loss in the dtype of input, or a CrossEntropyOutput if something besides is wanted."""
    wanted = return_z_loss, return_token_accuracy, return_predicted_tokens
    options = ignore_index, lse_square_scale, label_smoothing, reduction, softcap
    return reported(LigerCrossEntropyFunction.apply(input, target, weight, *options, *wanted), *wanted)


def liger_fused_linear_cross_entropy(
    input,
    weight,
    target,
    bias=None,
    ce_weight=None,
    ignore_index: int = -100,
    lse_square_scale: float = 0.0,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    softcap: float | None = None,
    return_z_loss: bool = False,
    accum_dtype=None,
    use_token_scaling: bool = False,
    return_token_accuracy: bool = False,
    return_predicted_tokens: bool = False,
    chunk_mem_const: int = 1,
):
    """The loss in f32, or a CrossEntropyOutput if something besides is wanted."""
    wanted = return_token_accuracy, return_predicted_tokens
    options = ignore_index, lse_square_scale, label_smoothing, reduction, softcap, return_z_loss
    arguments = input, weight, target, bias, ce_weight, *options, accum_dtype, use_token_scaling, *wanted
    return reported(LigerFusedLinearCrossEntropyFunction.apply(*arguments), return_z_loss, *wanted)
