"""Rotary positions: a function of (q, k, cos, sin) that an attention's forward calls by a global name.

The name belongs to every model of the family, so what is replaced is the attention's forward on the instance: the same
code, with that one global bound to Tigon's function."""

import inspect
import types
from collections.abc import Callable

import torch
from torch import nn

from ..torch import functional as F
from .replacement import Left, Method, Replacement, computable


def find_rotary(module: nn.Module) -> Replacement | Left | None:
    """A function of q, k [B, H, T, D] and cos, sin [B, T, ..]; which layout it follows is found by running it."""
    forward = type(module).forward
    code = getattr(forward, "__code__", None)
    if code is None:
        return None
    functions = {name: forward.__globals__[name] for name in code.co_names if _is_rotary(forward.__globals__.get(name))}
    if not functions:
        return None
    layouts = {name: _layout(function) for name, function in functions.items()}
    for name, layout in layouts.items():
        if layout is None:
            return Left(f"{name} turns neither halves nor pairs as rope does")
    rotations = {name: _rotation(function, _LAYOUTS[layouts[name]][1]) for name, function in functions.items()}
    # Without __name__, torch.compile guards on this dictionary and not on the family's module.
    names = {key: value for key, value in forward.__globals__.items() if key != "__name__"} | rotations
    bound = types.FunctionType(code, names, forward.__name__, forward.__defaults__, forward.__closure__)
    bound.__kwdefaults__ = forward.__kwdefaults__
    detail = ", ".join(f"{name}: {layout}" for name, layout in layouts.items())
    return Replacement(detail, (Method(module, "forward", bound),))


def _is_rotary(value: object) -> bool:
    if isinstance(value, nn.Module):  # which the package `kernels` makes of a function
        value = value.forward
    if not inspect.isroutine(value):
        return False
    try:
        parameters = list(inspect.signature(value).parameters)
    except ValueError:  # a builtin without one
        return False
    return parameters in (["q", "k", "cos", "sin"], ["q", "k", "cos", "sin", "unsqueeze_dim"])


# What pairs up, and how often cos and sin hold an angle: how angles [B, T, R / 2] are given, how rope takes them.
_LAYOUTS = {
    "halves": (lambda angle: torch.cat([angle, angle], -1), F.rope),
    "halves, each angle once": (
        lambda angle: angle,
        lambda q, k, cos, sin: F.rope(q, k, cos.contiguous(), sin.contiguous(), rotary_dim=2 * cos.shape[-1]),
    ),
    "pairs": (
        lambda angle: torch.cat([angle, angle], -1),
        lambda q, k, cos, sin: F.rope(q, k, cos, sin, interleaved=True),
    ),
    "pairs, angles in pairs": (
        lambda angle: angle.repeat_interleave(2, -1),
        lambda q, k, cos, sin: F.rope(
            q, k, cos[..., ::2].contiguous(), sin[..., ::2].contiguous(), interleaved=True, rotary_dim=cos.shape[-1]
        ),
    ),
}


def _rotation(function: Callable, rope: Callable) -> Callable:
    """unsqueeze_dim is 1 for q, k [B, H, T, D] and 2 for [B, T, H, D]."""

    def rotate(q, k, cos, sin, *dims, **named_dims):
        unsqueeze_dim = (*dims, *named_dims.values(), 1)[0]
        if unsqueeze_dim not in (1, 2) or q.ndim != 4 or not computable(q, cos) or k.stride(-1) != 1:
            return function(q, k, cos, sin, *dims, **named_dims)
        if unsqueeze_dim == 1:
            return rope(q, k, cos, sin)
        q, k = rope(q.transpose(1, 2), k.transpose(1, 2), cos, sin)
        return q.transpose(1, 2), k.transpose(1, 2)

    return rotate


def _layout(function: Callable) -> str | None:
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 3, 5, 8, generator=generator), torch.randn(2, 1, 5, 8, generator=generator)
    angle = torch.randn(2, 5, 4, generator=generator)
    for layout, (table, rope) in _LAYOUTS.items():
        cos, sin = table(angle.cos()), table(angle.sin())
        try:
            want = function(q, k, cos, sin)
        except Exception:  # whatever a stranger's function raises: it is not this layout
            continue
        if all(
            isinstance(theirs, torch.Tensor) and theirs.shape == ours.shape and torch.allclose(ours, theirs, 1e-5, 1e-6)
            for theirs, ours in zip(want, rope(q, k, cos, sin))
        ):
            return layout
    return None
