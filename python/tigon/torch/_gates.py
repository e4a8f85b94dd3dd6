"""The activations of an MLP: swiglu, geglu, relu_squared."""

import torch

from tigon.torch._autograd import Choice, nonzero, promoted
from tigon.torch._derived import derived
from tigon.torch._op import op

_APPROXIMATE = Choice("approximate", tanh=0, none=1)


def _half(packed):
    return packed.new_empty((*packed.shape[:-1], packed.shape[-1] // 2))


def _gate(name, options):
    """The autograd functions of a gate c(a, b): of two tensors, and of one that holds both side by side."""
    forward = op(f"{name}_fwd(Tensor a, Tensor b, {options}) -> Tensor c")(lambda a, b, *o: (torch.empty_like(a),))
    backward = op(f"{name}_bwd(Tensor dc, Tensor a, Tensor b, {options}) -> (Tensor da, Tensor db)")(
        lambda dc, a, b, *o: (torch.empty_like(a), torch.empty_like(b))
    )
    packed_forward = op(f"{name}_packed_fwd(Tensor ab, {options}) -> Tensor c", f"{name}_fwd", {"ab": ("a", "b")})(
        lambda ab, *o: (_half(ab),)
    )
    packed_backward = op(
        f"{name}_packed_bwd(Tensor dc, Tensor ab, {options}) -> Tensor dab",
        f"{name}_bwd",
        {"ab": ("a", "b"), "dab": ("da", "db")},
    )(lambda dc, ab, *o: (torch.empty_like(ab),))

    return derived(name, forward, backward), derived(name, packed_forward, packed_backward)


_SwiGLU, _PackedSwiGLU = _gate("swiglu", "float gate_mult, float down_mult, float clamp")
_GEGLU, _PackedGEGLU = _gate("geglu", "int approx")


def _swiglu_options(gate_multiplier, down_multiplier, limit):
    gate_multiplier = nonzero("swiglu", "gate_multiplier", gate_multiplier)
    down_multiplier = nonzero("swiglu", "down_multiplier", down_multiplier)
    return gate_multiplier, down_multiplier, 0.0 if limit is None else nonzero("swiglu", "limit", limit)


def swiglu(gate, up, gate_multiplier=1.0, down_multiplier=1.0, limit=None):
    """down_multiplier * silu(gate_multiplier * gate) * up.

    With a limit, gate is first clamped from above and up from both sides (gpt-oss). gate, up [..., I] of one dtype,
    f32, bf16 or f16 (under autocast the wider one).
    """
    return _SwiGLU(*promoted(gate, up), _swiglu_options(gate_multiplier, down_multiplier, limit))


def swiglu_packed(gate_up, gate_multiplier=1.0, down_multiplier=1.0, limit=None):
    """swiglu of the halves of gate_up [..., 2 I], gate first; nothing is split or joined in memory."""
    return _PackedSwiGLU(gate_up, _swiglu_options(gate_multiplier, down_multiplier, limit))


def geglu(gate, up, approximate="tanh"):
    """gelu(gate) * up; gelu by its tanh approximation, or exact for approximate="none". Shapes and dtypes as swiglu."""
    return _GEGLU(*promoted(gate, up), (_APPROXIMATE[approximate],))


def geglu_packed(gate_up, approximate="tanh"):
    """geglu of the halves of gate_up [..., 2 I], gate first; nothing is split or joined in memory."""
    return _PackedGEGLU(gate_up, (_APPROXIMATE[approximate],))


@op("relu_squared_fwd(Tensor x) -> Tensor y")
def _relu_squared_fwd(x):
    return (torch.empty_like(x),)


@op("relu_squared_bwd(Tensor dy, Tensor x) -> Tensor dx")
def _relu_squared_bwd(dy, x):
    return (torch.empty_like(x),)


_ReLUSquared = derived("relu_squared", _relu_squared_fwd, _relu_squared_bwd)


def relu_squared(x):
    """max(x, 0)^2. x f32, bf16 or f16."""
    return _ReLUSquared(x)
