"""Normalisation layers, by what they compute: RMSNorms, LayerNorms and torch's GroupNorm."""

import contextlib
import inspect
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import NamedTuple

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from ..torch import functional as F
from .replacement import Left, Method, Replacement, computable, is_distributed
from .trials import Differs, close, compare_rows, generator, gradients, once, run

_F32, _BF16, _F16 = torch.float32, torch.bfloat16, torch.float16


def _rms_norm_promoted(x, weight, bias, eps):
    """As Llama's, whose product with a wider weight is as wide as that."""
    return weight * F.rms_norm(x, None, eps)


def _layer_norm_1p(x, weight, bias, eps):
    return F.layer_norm(x, weight + 1, bias, eps)


_RMS = {
    "Llama": lambda x, weight, bias, eps: F.rms_norm(x, weight, eps),
    "Gemma": lambda x, weight, bias, eps: F.rms_norm(x, weight, eps, 1.0, "gemma"),
    "OLMo 2": lambda x, weight, bias, eps: F.rms_norm(x, weight, eps, 0.0, "gemma"),
}
_GATED = {"gated": lambda x, weight, bias, eps, gate: F.rms_norm(x, weight, eps, gate=gate)}
_LAYER = {"LayerNorm": F.layer_norm, "LayerNorm, 1 + weight": _layer_norm_1p}
_MIXED = {"Llama": _rms_norm_promoted}  # where the weight is f32 and x is not; else the same function is tried


class _Norm(NamedTuple):
    """A module with an eps and at most a weight and a bias, vectors; the names of all three. `gated`: its forward takes
    rows and their gates."""

    eps: str
    weight: str | None
    bias: str | None
    gated: bool


def find_rms_norm(module: nn.Module) -> Replacement | Left | None:
    """An RMSNorm by one of the conventions of tigon.torch.functional.rms_norm.

    Its own forward runs in each dtype and mode, on random rows and gates. A random weight is in place of its own."""
    return _found(module, "rms_norm")


def find_layer_norm(module: nn.Module) -> Replacement | Left | None:
    """As find_rms_norm: LayerNorms with and without bias, and those with 1 + weight."""
    return _found(module, "layer_norm")


def _found(module: nn.Module, kind: str) -> Replacement | Left | None:
    whose, verdict = _recognise(module)
    if whose != kind:
        return None
    return verdict(module) if callable(verdict) else verdict


@once
def _recognise(module: nn.Module) -> tuple[str, Callable | Left | None]:
    """The kind of norm that it is or comes closest to, and what makes its Replacement."""
    own = "layer_norm" if isinstance(module, nn.LayerNorm) else "rms_norm"
    norm = _norm(module)
    if not isinstance(norm, _Norm):
        return own, norm
    reasons = {}
    for kind, conventions in (dict(rms_norm=_GATED) if norm.gated else dict(rms_norm=_RMS, layer_norm=_LAYER)).items():
        try:
            return kind, _convention(module, norm, conventions)
        except Differs as error:
            reasons[kind] = Left(str(error))
    return own, reasons[own]


def _norm(module: nn.Module) -> _Norm | Left | None:
    eps = next((name for name in vars(module) if re.search("(^|_)eps(ilon)?$", name)), None)
    of_torch = type(module).__module__.startswith("torch.nn") and type(module) not in (nn.RMSNorm, nn.LayerNorm)
    if eps is None or of_torch or isinstance(module, nn.GroupNorm) or [*module.children()]:
        return None
    if isinstance(module, nn.LayerNorm) and len(module.normalized_shape) != 1:
        return Left(f"it normalises {len(module.normalized_shape)} dimensions at once, must be 1")
    buffers = [name for name, buffer in module.named_buffers(recurse=False) if buffer is not None]
    if buffers:
        return Left(f"not a norm of rows: its buffers are {', '.join(buffers)}")
    parameters = {name: p for name, p in module.named_parameters(recurse=False)}
    if not parameters.keys() <= {*list(parameters)[:1], "bias"} or any(p.ndim != 1 for p in parameters.values()):
        return Left("not a norm of rows: its parameters are " + ", ".join(parameters))
    arguments = list(inspect.signature(type(module).forward).parameters)[1:]
    gated = len(arguments) == 2 and len(parameters) == 1 and "bias" not in parameters
    if len(arguments) != 1 and not gated:
        return Left(f"its forward takes {', '.join(arguments)}")
    if not isinstance(getattr(module, eps), float):
        return Left(f"its {eps} is {getattr(module, eps)!r}, must be a float")
    bias = "bias" if "bias" in parameters else None
    return _Norm(eps, next((name for name in parameters if name != "bias"), None), bias, gated)


_SHAPES = (12,), (2, 6), (2, 2, 3)
_MODES = False, True


def _convention(module: nn.Module, norm: _Norm, conventions: dict[str, Callable]) -> Callable | Left:
    """The convention with the module's own bits, but for a rounding in a hundred elements. Differs if none does."""
    own = [None if name is None else getattr(module, name) for name in (norm.weight, norm.bias)]
    given = next((parameter for parameter in own if parameter is not None), None)
    channels = getattr(module, "normalized_shape", (64,))[-1] if given is None else given.numel()
    attempt = partial(_try, module, norm, channels)
    seen = None
    for convention, compute in conventions.items():
        try:
            attempt(compute, _F32, _F32)
            attempt(compute, _BF16, _BF16)
        except Exception as error:  # whatever a stranger's forward raises: it is not this convention
            seen = seen or error
            continue
        try:
            for mode, shape, dtype, seed in product(_MODES, _SHAPES, (_F32, _BF16, _F16), (0, 1)):
                attempt(compute, dtype, dtype, mode, shape, seed)
            for mode in _MODES:
                attempt(compute, _F32, _F32, mode, gradient=True)
        except Exception as error:
            return Left(f"it is {convention} but for this: {_said(error)}")
        mixed, under_autocast = _mixed(attempt, convention, compute), _autocast(attempt, compute)
        forward = partial(_forward, norm, compute, mixed, under_autocast, conventions is _RMS)
        text = f"{convention}, eps {getattr(module, norm.eps):g}"
        return partial(_replacement, forward, text, norm, channels)
    known = ", ".join(conventions)
    raise Differs(f"its forward is none of {known}: {_said(seen)} (rows of {channels})")


def _replacement(make: Callable, text: str, norm: _Norm, channels: int, module: nn.Module) -> Replacement:
    forward = make()
    inputs = 2 if norm.gated else 1
    comparison = compare_rows(module, forward, (2, 3, channels), 4, channels, inputs=inputs)
    return Replacement(text, (Method(module, "forward", forward),), comparison)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, Differs) else f"its forward raises {type(error).__name__}: {error}"


def _mixed(attempt, convention: str, compute: Callable) -> Callable | None:
    """What it computes of bf16 rows with weights of f32, if anything that is known."""
    for mixed in (_MIXED.get(convention), compute):
        try:
            for mode in _MODES:
                attempt(mixed, _BF16, _F32, mode)
            return mixed
        except Exception:  # whatever a stranger's forward raises
            continue
    return None


class _NoNormOfTorch(TorchFunctionMode):
    """Under it torch's own norms raise: on a GPU autocast makes their result f32."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (nn.functional.layer_norm, nn.functional.rms_norm, torch.layer_norm, torch.rms_norm):
            raise Differs("it calls torch's own norm")
        return function(*args, **(kwargs or {}))


def _autocast(attempt, compute: Callable) -> list[torch.dtype]:
    """The dtypes of rows for which autocast changes nothing."""
    same = []
    for dtype, mode in (_F32, contextlib.nullcontext()), (_BF16, _NoNormOfTorch()):
        try:
            with torch.autocast("cpu", torch.bfloat16), mode:
                attempt(compute, dtype, dtype)
            same.append(dtype)
        except Exception:  # whatever a stranger's forward raises
            continue
    return same + [_F16] * (_BF16 in same)


def _forward(norm: _Norm, compute: Callable, mixed: Callable | None, under_autocast: list, sharded: bool):
    def forward(self, x):
        weight = None if norm.weight is None else getattr(self, norm.weight)
        bias = None if norm.bias is None else getattr(self, norm.bias)
        if not computable(x, weight, bias) or (is_distributed(x) and not sharded):
            return type(self).forward(self, x)
        same = all(p is None or p.dtype == x.dtype for p in (weight, bias))
        function = compute if same else mixed
        if function is None:
            return type(self).forward(self, x)
        if x.dtype not in under_autocast and torch.is_autocast_enabled(x.device.type):
            return type(self).forward(self, x)
        return function(x, weight, bias, getattr(self, norm.eps))

    def gated_forward(self, x, gate=None, **named):
        weight = getattr(self, norm.weight)
        like = isinstance(gate, torch.Tensor) and (gate.shape, gate.dtype) == (x.shape, x.dtype)
        function = compute if weight.dtype == x.dtype else mixed
        autocast = x.dtype not in under_autocast and torch.is_autocast_enabled(x.device.type)
        if named or not like or function is None or autocast or is_distributed(x) or not computable(x, weight):
            return type(self).forward(self, x, *(() if gate is None else (gate,)), **named)
        return function(x, weight, None, getattr(self, norm.eps), gate)

    return gated_forward if norm.gated else forward


def _rows(shape: tuple[int, ...], channels: int, eps: float, seed: int) -> torch.Tensor:
    """[.., C]: the sizes of rows go from 1e-3 to 1e4, and for every other row mean(x^2) is about eps."""
    x = torch.randn(*shape, channels, generator=generator(seed), dtype=_F32)
    rows = x.view(-1, channels)
    sizes = torch.logspace(-3, 4, len(rows), dtype=_F32)[:, None]
    sizes[::2] = eps**0.5 * torch.logspace(-1, 1, len(sizes[::2]), dtype=_F32)[:, None]
    rows.mul_(sizes)
    return x


def _try(module, norm, channels, compute, dtype, weight_dtype, training=False, shape=(12,), seed=0, gradient=False):
    """Differs if the module's forward is another on these rows."""
    eps = getattr(module, norm.eps)
    x = _rows(shape, channels, eps, seed).to(dtype)
    numbers = torch.Generator().manual_seed(seed + 2)
    weight, bias = (
        None if name is None else (torch.rand(channels, generator=numbers) * 2 - 1).to(weight_dtype)
        for name in (norm.weight, norm.bias)
    )
    gates = [(4 * torch.randn(x.shape, generator=numbers)).to(dtype)] if norm.gated else []
    inputs = [t.requires_grad_(gradient) for t in (x, *gates, weight, bias) if t is not None]
    names = {name: nn.Parameter(p, gradient) for name, p in ((norm.weight, weight), (norm.bias, bias)) if name}
    with torch.set_grad_enabled(gradient):
        want = run(module, x, *gates, training=training, parameters=names)
        got = compute(x, weight, bias, eps, *gates)
    mode = "training" if training else "evaluation"
    where = f"in {mode} mode its output for x {dtype} {list(x.shape)}"
    if not isinstance(want, torch.Tensor) or (want.shape, want.dtype) != (got.shape, got.dtype):
        kind = f"{want.dtype} {list(want.shape)}" if isinstance(want, torch.Tensor) else type(want).__name__
        raise Differs(f"{where} is {kind}, must be {got.dtype} {list(got.shape)}")
    # Tigon's sums and rsqrt and torch's round apart by some eps of f32, which shows in f32 and seldom elsewhere.
    # A gate may be multiplied after one more rounding.
    apart = (got != want) & ~(got.isnan() & want.isnan())
    if want.dtype == _F32 or norm.gated:
        same = close(got, want, max(1e-5, torch.finfo(want.dtype).eps * (want.dtype != _F32)), 1e-6)
    else:
        same = apart.float().mean() < 0.01
    if not same:
        raise Differs(f"{where} is another")
    if gradient:
        upstream = torch.randn(x.shape, generator=numbers)
        ours = gradients([got], inputs, [upstream])
        theirs = gradients([want], [x, *gates, *names.values()], [upstream])
        for mine, own in zip(ours, theirs):
            if own is None or not (mine - own).norm() <= 1e-4 * own.norm():
                raise Differs("its gradient is another")


def find_group_norm(module: nn.Module) -> Replacement | Left | None:
    if not isinstance(module, nn.GroupNorm):
        return None
    if type(module).forward is not nn.GroupNorm.forward:
        return Left(f"its forward is {type(module).__name__}'s own, must be torch.nn.GroupNorm's")

    def forward(self, x):
        autocast = torch.is_autocast_enabled(x.device.type) and x.dtype != _F32  # torch gives f32 there
        if autocast or not computable(x, self.weight, self.bias) or is_distributed(x):
            return type(self).forward(self, x)
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    comparison = compare_rows(module, forward, (2, module.num_channels, 3), 4, module.num_channels * 3)
    text = f"{module.num_groups} groups, eps {module.eps:g}"
    return Replacement(text, (Method(module, "forward", forward),), comparison)
