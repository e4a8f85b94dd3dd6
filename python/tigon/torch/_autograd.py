"""What the autograd functions share."""

import functools
import math

import torch

_compiling, _transformed = torch.compiler.is_compiling, torch._C._are_functorch_transforms_active
_keeps_graph = torch.is_grad_enabled


class _NoContext:
    """The ctx of a forward whose backward nobody will run."""

    needs_input_grad = (False,) * 16

    def save_for_backward(self, *tensors):
        pass

    mark_non_differentiable = save_for_backward


class Function(torch.autograd.Function):
    """An autograd function that is called by `call`: `apply` less what only functorch needs, a third of the time, and
    less the graph where none is kept."""

    def __init_subclass__(cls):
        apply, forward = super(torch.autograd.Function, cls).apply, cls.forward

        def call(*args):
            if _compiling() or _transformed():
                return cls.apply(*args)
            return apply(*args) if _keeps_graph() else forward(_NoContext(), *args)

        cls.call = staticmethod(call)


def shorten_backwards():
    """The engine calls a node's `apply`, which looks for the class's backward each time; now it is that."""
    for function in Function.__subclasses__():
        function._backward_cls.apply = function.backward


class _Refusal(torch.autograd.Function):
    """The identity, whose gradient is a refusal."""

    @staticmethod
    def forward(ctx, name, anchor, *gradients):
        ctx.name = name
        return gradients

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError(f"tigon: {ctx.name} has no second derivative; its backward cannot be differentiated")


def first_order(name):
    """Decorates an operator's backward, which says so when someone differentiates it. (torch's once_differentiable does
    when the incoming gradient requires one itself, and is silently wrong otherwise.)"""

    def decorate(backward):
        def refused(ctx, *gradients):
            with torch.no_grad():
                results = backward(ctx, *gradients)
            results = results if isinstance(results, tuple) else (results,)
            anchor = torch.empty(0, requires_grad=True)
            refusing = iter(_Refusal.apply(name, anchor, *[g for g in results if g is not None]))
            return tuple(g if g is None else next(refusing) for g in results)

        @functools.wraps(backward)
        def run(ctx, gradient, *others):
            if _keeps_graph() and not _compiling():
                return refused(ctx, gradient, *others)
            return backward(ctx, gradient, *others) if others else backward(ctx, gradient)

        return run

    return decorate


def rows(x, each=1):
    """An f32 vector of one element, or `each`, a row of x."""
    return torch.empty(each * math.prod(x.shape[:-1]), dtype=torch.float32, device=x.device)


def strided(gradient):
    """A gradient as the C entries take it: autograd hands out expanded and transposed ones, which need a copy."""
    if gradient.is_contiguous() or (gradient.stride(-1) == 1 and gradient.dim() <= 4):
        return gradient
    return gradient.contiguous()


def like(t, wanted):
    return torch.empty_like(t) if wanted else None


class Choice(dict):
    """The names of an option's values; a wrong one is told the right ones."""

    def __init__(self, option, **values):
        super().__init__(values)
        self.option = option

    def __missing__(self, value):
        raise ValueError(f"tigon: {self.option} is {value!r}, must be " + " or ".join(map(repr, self)))


def nonzero(call, name, value):
    """The C structs take 0 for "not given"; here it is what it says, and refused."""
    if value == 0:
        raise ValueError(f"{call}: {name} is 0, must be another number")
    return value


def autocasting(x):
    any_device = torch.compiler.is_compiling() or torch._C._is_any_autocast_enabled()
    return any_device and torch.is_autocast_enabled(x.device.type)


def promoted(*tensors):
    """Under autocast, tensors of several floating types as the widest of them: torch's own promotion."""
    if not autocasting(tensors[0]):
        return tensors
    widest = functools.reduce(torch.promote_types, {t.dtype for t in tensors})
    return tuple(t.to(widest) for t in tensors)


def parameter(x, w):
    """Under autocast, a parameter that is neither f32 nor as x becomes f32."""
    if w is None or w.dtype is x.dtype or w.dtype is torch.float32 or not autocasting(x):
        return w
    return w.float()


def lowered(*tensors):
    """Under autocast, floating tensors in autocast's own dtype, as torch's matmuls take them."""
    device = tensors[0].device.type
    if not autocasting(tensors[0]):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(t if t is None else t.to(dtype) for t in tensors)
