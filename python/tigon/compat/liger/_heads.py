"""Liger-Kernel's losses that are no operator of their own: a head's divergence from given probabilities, and cross entropy
with the total variation distance."""

import torch
from torch import nn

from ...torch import functional as T
from ...torch._autograd import lowered
from ._losses import asserting, require


class _KLHead(torch.autograd.Function):
    """The sum over rows of KL(target || softmax(hidden @ weight.T / temperature)), with its gradients.

    Logits are held of as many rows as have no more of them than all rows have of hidden."""

    @staticmethod
    def forward(ctx, hidden, weight, target, labels, ignore_index, temperature):
        rows, width = hidden.shape
        step = max(1, rows * width // max(1, weight.shape[0]))
        wide = torch.promote_types(hidden.dtype, target.dtype)
        loss = hidden.new_zeros((), dtype=torch.float32)
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        dhidden = torch.zeros_like(hidden) if wants_hidden else None
        dweight = torch.zeros_like(weight, dtype=torch.float32) if wants_weight else None
        for begin in range(0, rows, step):
            here = slice(begin, begin + step)
            logits = T.linear(hidden[here], weight).to(wide).requires_grad_()
            own = None if labels is None else labels[here]
            options = dict(ignore_index=ignore_index, reduction="sum", target_is="probs", temperature=temperature)
            with torch.enable_grad():
                part = T.divergence(logits, target[here].to(wide), "kl", own, **options)
            (dlogits,) = torch.autograd.grad(part, logits)
            dlogits = dlogits.to(hidden.dtype)
            loss += part.detach()
            if wants_hidden:
                dhidden[here] = dlogits @ weight
            if wants_weight:
                dweight += dlogits.t() @ hidden[here]
        ctx.save_for_backward(dhidden, dweight)
        ctx.dtype = weight.dtype
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dloss):
        dhidden, dweight = ctx.saved_tensors
        dhidden = None if dhidden is None else (dhidden * dloss).to(dhidden.dtype)
        dweight = None if dweight is None else (dweight * dloss).to(ctx.dtype)
        return dhidden, dweight, None, None, None, None


class LigerFusedLinearKLDivFunction:
    @staticmethod
    @asserting
    def apply(
        student_input,
        student_weight,
        target,
        shift_labels=None,
        reduction="batchmean",
        ignore_index=-100,
        temperature=1.0,
        eps=1e-10,
        accum_dtype=None,
    ):
        """eps, below which Liger-Kernel takes a probability for more than it is, is not needed: 0 log 0 is 0."""
        names = ("batchmean", "mean", "sum")
        require(reduction in names, f"reduction is {reduction!r}, must be one of {names}")
        require(temperature != 0, "temperature is 0, must be another number")
        rows, vocab = student_input.shape[0], student_weight.shape[0]
        found, must = list(target.shape), [rows, vocab]
        require(found == must, f"target.shape is {found}, must be {must} (student_input.shape[0], student_weight.shape[0])")
        if shift_labels is not None:
            found, must = list(shift_labels.shape), [rows]
            require(found == must, f"shift_labels.shape is {found}, must be {must} (student_input.shape[0])")
        tensors = *lowered(student_input, student_weight), target.detach(), shift_labels
        loss = _KLHead.apply(*tensors, ignore_index, temperature)
        if reduction == "sum":
            return loss
        counted = rows if shift_labels is None else (shift_labels != ignore_index).sum()
        each = loss / (max(1, counted) if shift_labels is None else counted.clamp(min=1))
        return each / vocab if reduction == "mean" else each


class LigerFusedLinearKLDivLoss(nn.Module):
    def __init__(self, reduction="batchmean", ignore_index=-100, temperature=1.0, eps=1e-10, accum_dtype=None):
        super().__init__()
        require(temperature != 0, "temperature is 0, must be another number")
        self.reduction, self.ignore_index, self.temperature = reduction, ignore_index, temperature
        self.eps, self.accum_dtype = eps, accum_dtype

    def forward(self, student_input, student_weight, target, shift_labels=None):
        options = self.reduction, self.ignore_index, self.temperature, self.eps, self.accum_dtype
        return LigerFusedLinearKLDivFunction.apply(student_input, student_weight, target, shift_labels, *options)


def liger_fused_linear_kl_div(
    student_input,
    student_weight,
    target,
    shift_labels=None,
    reduction="batchmean",
    ignore_index=-100,
    temperature=1.0,
    eps=1e-10,
    accum_dtype=None,
):
    options = reduction, ignore_index, temperature, eps, accum_dtype
    return LigerFusedLinearKLDivFunction.apply(student_input, student_weight, target, shift_labels, *options)


class LigerFusedCETVDFunction:
    @staticmethod
    @asserting
    def apply(student_logits, teacher_logits, target, ignore_index=-100):
        """(ce, tvd), of f32, one of each for a row."""
        found, must = list(teacher_logits.shape), list(student_logits.shape)
        require(len(must) == 2, f"student_logits.ndim is {len(must)}, must be 2")
        require(found == must, f"teacher_logits.shape is {found}, must be {must} (student_logits.shape)")
        require(list(target.shape) == must[:1], f"target.shape is {list(target.shape)}, must be {must[:1]}")
        options = dict(ignore_index=ignore_index, reduction="none")
        ce = T.cross_entropy(student_logits, target, **options)
        return ce, T.divergence(student_logits, teacher_logits, "tvd", target, **options)


class LigerFusedCETVDLoss(nn.Module):
    def __init__(self, ignore_index=-100):
        super().__init__()
        self.ignore_index = ignore_index

    def forward(self, student_logits, teacher_logits, target):
        return LigerFusedCETVDFunction.apply(student_logits, teacher_logits, target, self.ignore_index)
