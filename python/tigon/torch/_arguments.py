"""What an operator is given that is no tensor, no number or no layout of its entry's, and what is said of it."""

import ctypes
import numbers

import torch

from tigon import _abi
from tigon._library import foreign

_DTYPES = {getattr(torch, name): value for name, value in _abi.DTYPES.items()}


def dtype_number(dtype):
    """The C entries' number of a dtype. They refuse what they do not know, and say what they take."""
    return _DTYPES.get(dtype) or foreign(str(dtype)[6:])


def _named(value):
    if value is None:
        return "None"
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def check_tensors(op, tensors):
    """Each must be a torch.Tensor with strides, or None where the schema says so."""
    for name, t in zip(op.tensor_names, tensors):
        optional = name in op.optional
        if t is None and optional:
            continue
        if not isinstance(t, torch.Tensor):
            must = "a torch.Tensor or None" if optional else "a torch.Tensor"
            raise TypeError(f"{op.entry}: {name} is {_named(t)}, must be {must}")
        if t.layout != torch.strided:
            raise NotImplementedError(f"{op.entry}: {name}.layout is {t.layout}, must be torch.strided")


def checked_options(op, options):
    """The options, numbers being of Python's own types. One of an int's fits it, for ctypes would cut it off."""
    checked = []
    for name, value in zip(op.option_names, options):
        kind = op.fields[name][1] if name in op.fields else None
        if kind is ctypes.c_double and not isinstance(value, numbers.Real):
            raise TypeError(f"{op.entry}: {name} is {_named(value)}, must be a number")
        if kind in (ctypes.c_int, ctypes.c_int64):
            if not isinstance(value, numbers.Integral):
                raise TypeError(f"{op.entry}: {name} is {_named(value)}, must be an int")
            bits = 8 * ctypes.sizeof(kind)
            if not -(1 << bits - 1) <= value < 1 << bits - 1:
                raise ValueError(f"{op.entry}: {name} is {value}, must fit {bits} bits")
        own = kind is None or type(value) in (bool, int, float)
        checked.append(value if own else float(value) if kind is ctypes.c_double else int(value))
    return checked


def needs_copies(refusal, tensors):
    """Does the library refuse strides, and would contiguous tensors have others?"""
    sentence = str(refusal)
    of_layout = ".strides[" in sentence or ": the leading dimensions collapse to " in sentence
    return of_layout and any(t is not None and not t.is_contiguous() for t in tensors)


def strided(t):
    """A tensor as most C entries take it: autograd hands out expanded and transposed gradients, which need a copy."""
    if not isinstance(t, torch.Tensor) or t.is_contiguous() or (t.stride(-1) == 1 and t.dim() <= 4):
        return t
    return t.contiguous()
