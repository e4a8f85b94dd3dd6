"""What the autograd functions share."""

import functools
import inspect

import torch

_compiling, _transformed = torch.compiler.is_dynamo_compiling, torch._C._are_functorch_transforms_active
_tracing = torch._C._get_tracing_state  # torch.jit.trace's, or None
_forward_mode = torch.autograd.forward_ad
_keeps_graph, _any_autocast = torch.is_grad_enabled, torch._C._is_any_autocast_enabled
# A tensor of is_grads_batched, whose vmap is none of torch.func's.
_is_batched = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda t: False)
# What torch looks up in an autograd function at each call, past all its bases.
_LOOKED_UP = ("setup_context", "clear_saved_tensors_on_access", "boxed_grads_call")


class _Refusal(torch.autograd.Function):
    """The identity of the first `count` tensors, whose gradient is a refusal. The tensors that those were made from
    follow them: a derivative of the first ones by any of these passes here."""

    @staticmethod
    def forward(ctx, name, count, *tensors):
        ctx.name = name
        return tensors[:count]

    @staticmethod
    def backward(ctx, *gradients):
        raise RuntimeError(f"tigon: {ctx.name} has no second derivative; its backward cannot be differentiated")


def refuse_transforms(name, tensors):
    """A transform's caller would not see the call, or sees more than one tensor in one."""
    if _transformed() or any(_is_batched(t) for t in tensors if t is not None):
        raise NotImplementedError(
            f"tigon: {name} is called within a transform of torch.func (vmap, grad, jvp, ...), must be called outside"
            " of them; torch.autograd.grad differentiates it, leading dimensions stand for vmap"
        )


def _first_order(name, backward):
    """The backward, which says so when someone differentiates it. (torch's once_differentiable does when the incoming
    gradient requires one itself, and is silently wrong otherwise.)"""

    @functools.wraps(backward)
    def run(ctx, *gradients):
        if not _compiling():
            refuse_transforms(name, gradients)
        if _compiling() or not _keeps_graph():
            return backward(ctx, *gradients)
        with torch.no_grad():
            results = backward(ctx, *gradients)
        results = results if isinstance(results, tuple) else (results,)
        return _Refusal.apply(name, len(results), *results, *gradients, *ctx.saved_tensors)

    return run


def autograd_function(name, forward, backward, parameters=0, in_c=None):
    """The autograd function of a forward, whose ctx is None where nobody will run a backward, and a backward. It is
    called by forward's arguments; as many `parameters` follow the first one. `in_c` has both in C, which torch.compile
    cannot follow. It gets the backward that is to be called where a graph is kept of it."""
    base = torch.autograd.Function
    held = {key: inspect.getattr_static(base, key) for key in _LOOKED_UP if hasattr(base, key)}

    def over(forward, backward):
        methods = dict(forward=staticmethod(forward), backward=staticmethod(backward))
        return type(base)(name, (base,), held | methods)

    backward = _first_order(name, backward)
    seen = direct = over(forward, backward)
    if in_c:
        forward, backward_in_c, kept_alive = in_c(backward)
        direct = over(forward, backward)  # whose backward is compiled autograd's
        direct._backward_cls.apply, direct.kept_alive = backward_in_c, kept_alive  # the engine's
    # `apply` less what only functorch needs, a third of the time, and less the graph where none is kept.
    apply = super(base, direct).apply

    def call(*args):
        compiling = _compiling()
        if parameters and (compiling or _any_autocast()):
            args = args[0], *as_parameters(*args[: 1 + parameters]), *args[1 + parameters :]
        if compiling:
            return seen.apply(*_apart(args))
        if _tracing():
            raise NotImplementedError(
                f"tigon: {name} is called within torch.jit.trace, must be called outside of it;"
                " torch.compile and torch.export follow it"
            )
        if _transformed():
            refuse_transforms(name, args)
        if _keeps_graph() or _forward_mode._current_level >= 0:  # which torch refuses, if it sees the call
            return apply(*args)
        return forward(None, *args)

    return call


def _apart(args):
    """The arguments, a tensor that comes twice as a view the second time: torch.compile takes each only once."""
    taken = []
    for arg in args:
        twice = isinstance(arg, torch.Tensor) and any(arg is other for other in taken)
        taken.append(arg.view_as(arg) if twice else arg)
    return taken


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
    if not (_compiling() or _any_autocast()):
        return False
    return isinstance(x, torch.Tensor) and torch.is_autocast_enabled(x.device.type)


def promoted(*tensors):
    """Under autocast, tensors of several floating types as the widest of them: torch's own promotion."""
    if not autocasting(tensors[0]):
        return tensors
    widest = functools.reduce(torch.promote_types, {t.dtype for t in tensors})
    return tuple(t.to(widest) for t in tensors)


def fitting(x, *parameters):
    """Parameters as the operators take them: one that is neither f32 nor as x becomes f32."""
    return tuple(w if w is None or w.dtype in (x.dtype, torch.float32) else w.float() for w in parameters)


def as_parameters(x, *given):
    """`fitting` under autocast."""
    return fitting(x, *given) if autocasting(x) else given


def lowered(*tensors):
    """Under autocast, floating tensors in autocast's own dtype, as torch's matmuls take them."""
    if not autocasting(tensors[0]):
        return tensors
    dtype = torch.get_autocast_dtype(tensors[0].device.type)
    return tuple(t if t is None else t.to(dtype) for t in tensors)
