"""Liger-Kernel's distillation through two heads: its fused JSD, and the chunked losses with a share of cross entropy.

`compiled` and `chunk_size` have no effect: nothing is compiled, and both heads' logits are held in chunks of tokens."""

import torch
from torch import nn

from ...torch import functional as F
from ._losses import asserting, require


class LigerFusedLinearJSDFunction:
    @staticmethod
    @asserting
    def apply(
        student_input,
        student_weight,
        teacher_input,
        teacher_weight,
        shift_labels=None,
        jsd_beta=0.5,
        ignore_index=-100,
        temperature=1.0,
        accum_dtype=None,
        jsd_impl=None,
        jsd_mode=None,
    ):
        """The logits are in f32, as Liger-Kernel's on a GPU."""
        if shift_labels is not None:
            found, must = list(shift_labels.shape), [teacher_input.shape[0]]
            require(found == must, f"shift_labels.shape is {found}, must be {must} (teacher_input.shape[0])")
        heads = student_input, student_weight, teacher_input, teacher_weight
        options = dict(kind="jsd", beta=jsd_beta, ignore_index=ignore_index, temperature=temperature)
        return F.fused_linear_divergence(*heads, labels=shift_labels, logits_in_f32=True, **options)


class LigerFusedLinearJSD(nn.Module):
    def __init__(self, jsd_beta=0.5, ignore_index=-100, temperature=1.0, accum_dtype=None):
        super().__init__()
        require(temperature != 0, "temperature is 0, must be another number")
        self.jsd_beta, self.temperature = jsd_beta, temperature
        self.ignore_index, self.accum_dtype = ignore_index, accum_dtype

    def forward(self, student_input, student_weight, teacher_input, teacher_weight, shift_labels):
        heads = student_input, student_weight, teacher_input, teacher_weight
        options = self.jsd_beta, self.ignore_index, self.temperature
        return LigerFusedLinearJSDFunction.apply(*heads, shift_labels, *options, self.accum_dtype)


def liger_fused_linear_jsd(
    student_input,
    student_weight,
    teacher_input,
    teacher_weight,
    shift_labels=None,
    jsd_beta=0.5,
    ignore_index=-100,
    temperature=1.0,
    accum_dtype=None,
):
    heads = student_input, student_weight, teacher_input, teacher_weight
    options = jsd_beta, ignore_index, temperature, accum_dtype
    return LigerFusedLinearJSDFunction.apply(*heads, shift_labels, *options)


def _distil(
    kind, heads, labels, biases, weight_hard, weight_soft, ignore_index, temperature, parts, scale=1.0, **options
):
    """The loss, or with `parts` itself, the soft loss, which is `scale` times the mean divergence, and the hard one.

    The one place where the chunked losses meet the operators. A part of weight 0 is made only where it is returned."""
    hidden, weight = heads[:2]

    def hard():
        return F.fused_linear_cross_entropy(hidden, weight, labels, biases[0], ignore_index=ignore_index)

    def both(weight_soft, weight_hard):
        return F.fused_linear_divergence(
            *(*heads, *biases, labels),
            **dict(kind=kind, ignore_index=ignore_index, temperature=temperature, truncate_teacher=True),
            **dict(weight_soft=weight_soft, weight_hard=weight_hard, outputs=parts),
            **options,
        )

    if weight_soft * scale == 0:
        loss = weight_hard * hard()
        if not parts:
            return loss
        with torch.no_grad():
            return loss, scale * both(1.0, 0.0).soft_loss, hard()
    found = both(weight_soft * scale, weight_hard)
    if not parts:
        return found
    with torch.no_grad():
        return found.loss, scale * found.soft_loss, hard() if weight_hard == 0 else found.hard_loss


def _chunked(kind, options):
    """Liger-Kernel's function of that kind; `options` says what beta is to the operators."""

    @asserting
    def apply(
        student_input,
        student_weight,
        teacher_input,
        teacher_weight,
        true_labels,
        student_bias,
        teacher_bias,
        weight_hard_loss=0.5,
        weight_soft_loss=0.5,
        beta=0.5,
        ignore_index=-100,
        temperature=1.0,
        compiled=True,
        chunk_size=1024,
        return_soft_hard_loss=False,
    ):
        heads, biases = (student_input, student_weight, teacher_input, teacher_weight), (student_bias, teacher_bias)
        weights, more = (weight_hard_loss, weight_soft_loss), (ignore_index, temperature, return_soft_hard_loss)
        return _distil(kind, heads, true_labels, biases, *weights, *more, **options(beta))

    return staticmethod(apply)


class LigerChunkedJSDFunction:
    apply = _chunked("jsd", lambda beta: dict(beta=beta, logits_in_f32=True))


class LigerFusedLinearCosineSimilarityFunction:
    """The soft loss is beta (1 - cosine)."""

    apply = _chunked("cosine", lambda beta: dict(scale=beta))


class _Distillation(nn.Module):
    def __init__(
        self,
        weight_hard_loss=0.5,
        weight_soft_loss=0.5,
        beta=0.5,
        ignore_index=-100,
        temperature=1.0,
        compiled=True,
        chunk_size=1024,
        return_soft_hard_loss=False,
    ):
        super().__init__()
        require(temperature != 0, "temperature is 0, must be another number")
        self.weight_hard_loss, self.weight_soft_loss, self.beta = weight_hard_loss, weight_soft_loss, beta
        self.ignore_index, self.temperature, self.compiled = ignore_index, temperature, compiled
        self.chunk_size, self.return_soft_hard_loss = chunk_size, return_soft_hard_loss

    def forward(
        self,
        student_input,
        student_weight,
        teacher_input,
        teacher_weight,
        true_labels,
        student_bias=None,
        teacher_bias=None,
    ):
        return self._function.apply(
            *(student_input, student_weight, teacher_input, teacher_weight, true_labels, student_bias, teacher_bias),
            *(self.weight_hard_loss, self.weight_soft_loss, self.beta, self.ignore_index, self.temperature),
            *(self.compiled, self.chunk_size, self.return_soft_hard_loss),
        )


class LigerFusedLinearJSDLoss(_Distillation):
    _function = LigerChunkedJSDFunction


class LigerFusedLinearCosineSimilarityLoss(_Distillation):
    _function = LigerFusedLinearCosineSimilarityFunction


liger_fused_linear_cosine = LigerFusedLinearCosineSimilarityFunction.apply

# Names of chunked_loss that Liger-Kernel has elsewhere, too, for the loss without cross entropy.
CHUNKED = dict(
    LigerFusedLinearJSDFunction=LigerChunkedJSDFunction, liger_fused_linear_jsd=LigerChunkedJSDFunction.apply
)
