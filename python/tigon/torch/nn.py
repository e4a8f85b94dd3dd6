"""Modules over tigon.torch.functional, with the parameters' names and shapes of torch.nn."""

import collections.abc

import torch

from tigon.torch import functional as F

__all__ = [
    "CrossEntropyLoss",
    "Embedding",
    "FusedLinearCrossEntropyLoss",
    "GEGLU",
    "GroupNorm",
    "LayerNorm",
    "RMSNorm",
    "ReLUSquared",
    "SwiGLU",
]


def _one_dimension(module, name, shape):
    """The extent of a normalized_shape, which torch takes as a number or as a tuple."""
    if not isinstance(shape, collections.abc.Iterable):
        return shape
    if len(shape) != 1:
        raise ValueError(f"{module}: {name} has {len(shape)} dimensions, must have 1")
    return shape[0]


class RMSNorm(torch.nn.Module):
    """functional.rms_norm over the last dimension, of `size`, a number or a tuple of one. The weight starts at
    1 - offset, so as the identity."""

    def __init__(self, size, eps=1e-6, offset=0.0, casting="llama", elementwise_affine=True, device=None, dtype=None):
        super().__init__()
        size = _one_dimension("RMSNorm", "size", size)
        self.size, self.eps, self.offset, self.casting = size, eps, offset, casting
        weight = torch.full((size,), 1.0 - offset, device=device, dtype=dtype) if elementwise_affine else None
        self.register_parameter("weight", weight if weight is None else torch.nn.Parameter(weight))

    def forward(self, x):
        return F.rms_norm(x, self.weight, self.eps, self.offset, self.casting)

    def extra_repr(self):
        return f"{self.size}, eps={self.eps}, offset={self.offset}, casting={self.casting!r}"


class LayerNorm(torch.nn.LayerNorm):
    """torch.nn.LayerNorm over the last dimension."""

    def __init__(self, normalized_shape, *args, **kwargs):
        super().__init__(normalized_shape, *args, **kwargs)
        _one_dimension("LayerNorm", "normalized_shape", self.normalized_shape)

    def forward(self, x):
        return F.layer_norm(x, self.weight, self.bias, self.eps)


class GroupNorm(torch.nn.GroupNorm):
    def forward(self, x):
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)


class SwiGLU(torch.nn.Module):
    """functional.swiglu of (gate, up), or of one tensor that holds both."""

    def __init__(self, gate_multiplier=1.0, down_multiplier=1.0, limit=None):
        super().__init__()
        self.options = gate_multiplier, down_multiplier, limit

    def forward(self, gate, up=None):
        return F.swiglu_packed(gate, *self.options) if up is None else F.swiglu(gate, up, *self.options)


class GEGLU(torch.nn.Module):
    """functional.geglu of (gate, up), or of one tensor that holds both."""

    def __init__(self, approximate="tanh"):
        super().__init__()
        self.approximate = approximate

    def forward(self, gate, up=None):
        return F.geglu_packed(gate, self.approximate) if up is None else F.geglu(gate, up, self.approximate)


class ReLUSquared(torch.nn.Module):
    def forward(self, x):
        return F.relu_squared(x)


class Embedding(torch.nn.Embedding):
    """torch.nn.Embedding, less max_norm, scale_grad_by_freq and sparse."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for name in ("max_norm", "scale_grad_by_freq", "sparse"):
            if getattr(self, name):
                raise NotImplementedError(f"Embedding: {name} is {getattr(self, name)}, must be left out")

    def forward(self, ids):
        return F.embedding(ids, self.weight, self.padding_idx)


class _Loss(torch.nn.Module):
    def __init__(self, weight=None, **options):
        super().__init__()
        self.register_buffer("weight", weight)
        self.options = options


class CrossEntropyLoss(_Loss):
    """functional.cross_entropy; its options are the keyword arguments."""

    def forward(self, logits, target):
        return F.cross_entropy(logits, target, self.weight, **self.options)


class FusedLinearCrossEntropyLoss(_Loss):
    """functional.fused_linear_cross_entropy; its options are the keyword arguments, `weight` that of the classes."""

    def forward(self, hidden, weight, target, bias=None):
        return F.fused_linear_cross_entropy(hidden, weight, target, bias, class_weight=self.weight, **self.options)
