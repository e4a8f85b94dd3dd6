"""Gradients that are made with the loss, times the gradient that comes for the loss."""

import torch

from tigon import _abi
from tigon._library import ENTRIES
from tigon.torch._op import DEVICES, Op, context, write_layout

_scale = Op("scale_fwd")
_entry = ENTRIES["scale_fwd"]
_modes = torch._C._len_torch_dispatch_stack


def is_plain(t):
    """Does the library alone see the tensor's memory?"""
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.device.type in DEVICES and not _modes()


def scaled(gradient, factor, again):
    """gradient * factor in f32, rounded once. The factor, one element of f32, is left on the device: that a 1 has no
    work is seen there. The result lies where `gradient` does, unless that is needed `again`."""
    if torch.compiler.is_compiling():
        return (gradient.float() * factor).to(gradient.dtype)
    factor = factor.resolve_neg()  # PyTorch may leave a minus sign to whoever reads the number
    if again:
        return _scale(gradient, factor)
    if not (is_plain(gradient) and gradient.is_contiguous()):
        return gradient.mul_(factor)
    args, elements = _entry.struct(), (gradient.numel(),)
    for field, t, shape in (("x", gradient, elements), ("factor", factor, (1,)), ("y", gradient, elements)):
        into = _abi.Tensor.from_buffer(args, _entry.places[field][0])
        write_layout("scale_fwd", field, into, t.dtype, shape, (1,))
        into.data = t.data_ptr()
    context(gradient.device).run("scale_fwd", args)
    return gradient
