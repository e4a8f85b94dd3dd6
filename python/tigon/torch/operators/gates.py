"""The gates of an MLP: swiglu, geglu."""

import torch

from tigon.torch._autograd import Choice, nonzero, promoted
from tigon.torch._derived import derived
from tigon.torch._op import Op
from tigon.torch._sharding import elements, rows

FUNCTIONS = ["swiglu", "swiglu_packed", "geglu", "geglu_packed"]
MODULES = ["SwiGLU", "GEGLU"]
SHARDING = dict.fromkeys(("swiglu", "geglu"), elements)
SHARDING |= dict.fromkeys(("swiglu_packed", "geglu_packed"), rows())

_APPROXIMATE = Choice("approximate", tanh=0, none=1)


def _gate(name):
    """The autograd functions of a gate c(a, b): of two tensors, and of one that holds both side by side."""
    fields, gradients = {"ab": ("a", "b")}, {"dab": ("da", "db")}
    forward = Op(f"{name}_packed_fwd", f"{name}_fwd", halves=fields)
    backward = Op(f"{name}_packed_bwd", f"{name}_bwd", halves=fields | gradients)
    return derived(name), derived(name, forward, backward)


_SwiGLU, _PackedSwiGLU = _gate("swiglu")
_GEGLU, _PackedGEGLU = _gate("geglu")


def _swiglu_options(gate_multiplier, down_multiplier, limit, up_offset):
    gate_multiplier = nonzero("swiglu", "gate_multiplier", gate_multiplier)
    down_multiplier = nonzero("swiglu", "down_multiplier", down_multiplier)
    limit = 0.0 if limit is None else nonzero("swiglu", "limit", limit)
    return gate_multiplier, down_multiplier, limit, float(up_offset)


def swiglu(gate, up, gate_multiplier=1.0, down_multiplier=1.0, limit=None, up_offset=0.0):
    """down_multiplier * silu(gate_multiplier * gate) * (up + up_offset).

    With a limit, gate is first clamped from above and up from both sides. gpt-oss has gate_multiplier 1.702,
    down_multiplier 1 / 1.702, limit 7 and up_offset 1. gate, up [..., I] of one dtype,
    f32, bf16 or f16 (under autocast the wider one).
    """
    return _SwiGLU(*promoted(gate, up), _swiglu_options(gate_multiplier, down_multiplier, limit, up_offset))


def swiglu_packed(gate_up, gate_multiplier=1.0, down_multiplier=1.0, limit=None, up_offset=0.0):
    """swiglu of the halves of gate_up [..., 2 I], gate first; nothing is split or joined in memory."""
    return _PackedSwiGLU(gate_up, _swiglu_options(gate_multiplier, down_multiplier, limit, up_offset))


def geglu(gate, up, approximate="tanh"):
    """gelu(gate) * up; gelu by its tanh approximation, or exact for approximate="none". Shapes and dtypes as swiglu."""
    return _GEGLU(*promoted(gate, up), (_APPROXIMATE[approximate],))


def geglu_packed(gate_up, approximate="tanh"):
    """geglu of the halves of gate_up [..., 2 I], gate first; nothing is split or joined in memory."""
    return _PackedGEGLU(gate_up, (_APPROXIMATE[approximate],))


class SwiGLU(torch.nn.Module):
    """functional.swiglu of (gate, up), or of one tensor that holds both."""

    def __init__(self, gate_multiplier=1.0, down_multiplier=1.0, limit=None, up_offset=0.0):
        super().__init__()
        self.options = gate_multiplier, down_multiplier, limit, up_offset

    def forward(self, gate, up=None):
        return swiglu_packed(gate, *self.options) if up is None else swiglu(gate, up, *self.options)


class GEGLU(torch.nn.Module):
    """functional.geglu of (gate, up), or of one tensor that holds both."""

    def __init__(self, approximate="tanh"):
        super().__init__()
        self.approximate = approximate

    def forward(self, gate, up=None):
        return geglu_packed(gate, self.approximate) if up is None else geglu(gate, up, self.approximate)
