"""Rotary positions: a function that an attention's forward calls by a global name.

The name belongs to every model of the family. So the attention's forward is replaced on the instance: the same code,
with that one global bound to Tigon's function."""

import functools
import inspect
import types
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

import torch
from torch import nn

from ..torch import functional as F
from .replacement import Left, Method, Pair, Replacement, computable
from .trials import close, generator, gradients

_F32, _BF16, _F16 = torch.float32, torch.bfloat16, torch.float16
_TWO = ["q", "k", "cos", "sin"]
_ONE = ["x", "cos", "sin"]


def find_rotary(module: nn.Module) -> Replacement | Left | None:
    """A function of q, k and tables cos, sin; of one tensor x; or of q, k and a complex table. Heads are [B, H, T, D],
    [B, T, H, D] or [T, H, D]. Which of these it takes, and what it pairs, is found by running it."""
    forward = type(module).forward
    inner = inspect.unwrap(forward)
    code = getattr(inner, "__code__", None)
    if code is None:
        return None
    functions = {name: inner.__globals__[name] for name in code.co_names if _is_rotary(inner.__globals__.get(name))}
    methods = [name for name in code.co_names if "rotary" in name and inspect.isroutine(vars(type(module)).get(name))]
    if not functions:
        return Left(f"its rope is its own method {methods[0]}") if methods else None
    if _around(forward, inner, inner) is None:
        return Left(f"its forward calls {', '.join(functions)}, and is wrapped by a decorator")
    rotations = {}
    for name, function in functions.items():
        parameters = _parameters(function)
        if _kind(parameters) is None:
            return Left(f"{name} takes {', '.join(parameters)}")
        found = _recognise(function)
        if not found:
            return Left(f"{name} turns neither halves nor pairs as rope does")
        rotations[name] = _rotation(function, _kind(parameters), found)
    # Without __name__, torch.compile guards on this dictionary and not on the family's module.
    names = {key: value for key, value in inner.__globals__.items() if key != "__name__"} | rotations
    bound = types.FunctionType(code, names, inner.__name__, inner.__defaults__, inner.__closure__)
    bound.__kwdefaults__ = inner.__kwdefaults__
    bound = _around(forward, inner, bound)

    def compare(training: bool) -> list[Pair]:
        dtype = next((p.dtype for p in module.parameters() if p.is_floating_point()), _F32)
        return [pair for function in functions.values() for pair in _compare(function, dtype)]

    details = {
        name: ", ".join(dict.fromkeys(way.text for way in _recognise(f).values())) for name, f in functions.items()
    }
    detail = ", ".join(f"{name}: {text}" for name, text in details.items())
    return Replacement(detail, (Method(module, "forward", bound),), compare, weighs=False)


def _around(decorated: Callable, inner: Callable, new: Callable) -> Callable | None:
    """`decorated`, whose decorators end in `inner`, around `new`. None if a decorator does not wrap by a closure."""
    if decorated is inner:
        return new
    wrapped, within = decorated.__wrapped__, _around(decorated.__wrapped__, inner, new)
    cells = getattr(decorated, "__closure__", None) or ()
    closure = tuple(types.CellType(within) if cell == types.CellType(wrapped) else cell for cell in cells)
    if within is None or sum(a is not b for a, b in zip(closure, cells)) != 1:
        return None
    made = types.FunctionType(
        decorated.__code__, decorated.__globals__, decorated.__name__, decorated.__defaults__, closure
    )
    made.__kwdefaults__ = decorated.__kwdefaults__
    return made


def _parameters(value: object) -> list[str]:
    if isinstance(value, nn.Module):  # which the package `kernels` makes of a function
        value = value.forward
    if not inspect.isroutine(value):
        return []
    try:
        return list(inspect.signature(value).parameters)
    except ValueError:  # a builtin without one
        return []


def _is_rotary(value: object) -> bool:
    names = {*_parameters(value)}
    return {"cos", "sin"} <= names or bool(names & {"freqs_cis", "freqs_ci"})


def _kind(parameters: list[str]) -> str | None:
    """What a function of these parameters takes: two tensors, one, or two and a complex table."""
    tables = [name for name in parameters if name != "unsqueeze_dim"]
    if tables == _TWO or tables == _ONE:
        return "two" if tables == _TWO else "one"
    return "complex" if len(parameters) == 3 and parameters[2] in ("freqs_cis", "freqs_ci") else None


def _first(q, k, cos, sin, **options):
    return F.rope(q, k, cos.contiguous(), sin.contiguous(), **options)


def _last(q, k, cos, sin, rotary_dim, **options):
    """The last rotary_dim elements of a head turn."""
    heads = [x.split((x.shape[-1] - rotary_dim, rotary_dim), -1) for x in (q, k)]
    turned = F.rope(*(turn for _, turn in heads), cos.contiguous(), sin.contiguous(), rotary_dim=rotary_dim, **options)
    return tuple(torch.cat([rest, turn], -1) for (rest, _), turn in zip(heads, turned))


class _Layout(NamedTuple):
    """What pairs up, and how often the tables hold an angle [B, T, R / 2]: how rope takes them."""

    table: Callable
    rope: Callable
    angles: int  # in a column of the tables: R is 2 / angles times their width


def _layouts() -> dict[str, _Layout]:
    made = {}
    for pairs, (place, rope) in product((False, True), (("", _first), (", the last of a head", _last))):
        name = "pairs" if pairs else "halves"

        def twice(q, k, cos, sin, rope=rope, pairs=pairs):
            return rope(q, k, cos, sin, rotary_dim=cos.shape[-1], interleaved=pairs)

        def once(q, k, cos, sin, rope=rope, pairs=pairs):
            return rope(q, k, cos, sin, rotary_dim=2 * cos.shape[-1], interleaved=pairs)

        def in_pairs(q, k, cos, sin, rope=rope, pairs=pairs):
            return rope(q, k, cos[..., ::2], sin[..., ::2], rotary_dim=cos.shape[-1], interleaved=pairs)

        made[name + place] = _Layout(lambda angle: torch.cat([angle, angle], -1), twice, 1)
        made[f"{name}, each angle once{place}"] = _Layout(lambda angle: angle, once, 2)
        if pairs:
            made[f"{name}, angles in pairs{place}"] = _Layout(lambda angle: angle.repeat_interleave(2, -1), in_pairs, 1)
    return made


_LAYOUTS = _layouts()


class _Form(NamedTuple):
    """How heads are given: how they become [B, H, T, D], and back; and how a table is given, and becomes [.., T, R]."""

    into: Callable
    back: Callable
    heads: int  # dimensions
    table: int
    give: Callable  # takes [B, T, R]
    take: Callable


_KEPT, _SWAPPED = (lambda x: x,) * 2, (lambda x: x.transpose(1, 2),) * 2
_BATCH, _ONE_TABLE = (3, *_KEPT), (2, lambda table: table[0], _KEPT[0])
_FORMS = {
    "[B, H, T, D]": _Form(*_KEPT, 4, *_BATCH),
    "[B, T, H, D]": _Form(*_SWAPPED, 4, *_BATCH),
    "[B, H, T, D], table [T, R]": _Form(*_KEPT, 4, *_ONE_TABLE),
    "[B, T, H, D], table [T, R]": _Form(*_SWAPPED, 4, *_ONE_TABLE),
    "[B, T, H, D], table [T, 1, R]": _Form(*_SWAPPED, 4, 3, lambda table: table[0][:, None], lambda table: table[:, 0]),
    "[T, H, D]": _Form(lambda x: x.transpose(0, 1)[None], lambda x: x[0].transpose(0, 1), 3, *_ONE_TABLE),
}


class _Way(NamedTuple):
    """How a function is computed for heads and tables of so many dimensions and that unsqueeze_dim.

    dtypes: (heads', tables'): the result's."""

    form: str
    layout: str
    partial: bool
    dtypes: dict

    @property
    def text(self) -> str:
        return self.layout


def _call(kind: str, function: Callable, q, k, cos, sin, dims: tuple):
    """(q, k) turned by the module's own function."""
    if kind == "one":
        return function(q, cos, sin, *dims), function(k, cos, sin, *dims)
    if kind == "complex":
        return function(q, k, torch.complex(cos, sin))
    return function(q, k, cos, sin, *dims)


@functools.lru_cache(maxsize=64)
def _recognise(function: Callable) -> dict[tuple, _Way]:
    """By (dimensions of heads, of tables, unsqueeze_dim or None): how it is computed."""
    parameters = _parameters(function)
    dims = (1, 2) if "unsqueeze_dim" in parameters else (None,)
    found = {}
    for dim, (name, form) in product(dims, _FORMS.items()):
        key = form.heads, form.table, dim
        if key not in found and (way := _way(function, name, dim)) is not None:
            found[key] = way
    return found


def _way(function: Callable, form: str, dim: int | None) -> _Way | None:
    kind = _kind(_parameters(function))
    attempt = functools.partial(_agrees, function, kind, form, dim)
    for layout in _LAYOUTS if kind != "complex" else ("pairs, each angle once",):
        if not all(attempt(layout, 8, 8, seed=seed, size=size) for seed in (0, 1) for size in (1.0, 1e-3, 300.0)):
            continue
        partial = kind != "complex" and all(attempt(layout, 16, 8, seed=seed) for seed in (0, 1))
        if kind != "complex" and not partial and attempt(layout, 16, 8, runs=True):
            continue  # it turns other elements where it turns some
        pairs = [(_F32, _F32), (_BF16, _BF16), (_BF16, _F32), (_F16, _F16), (_F16, _F32)]
        results = {}
        for heads, tables in pairs if kind != "complex" else [p for p in pairs if p[1] == _F32]:
            for result in {heads: None, _F32: None}:
                if attempt(layout, 8, 8, dtypes=(heads, tables, result)):
                    results[heads, tables] = result
                    break
        gradients = attempt(layout, 8, 8, gradient=True)
        if results.get((_F32, _F32)) and gradients:
            return _Way(form, layout, partial, results)
    return None


def _heads(form: str, width: int, turning: int, layout: str, seed: int, size: float):
    """q, k as the function takes them, and its tables; every extent is another."""
    numbers = generator(seed)
    draw = functools.partial(torch.randn, generator=numbers, dtype=_F32)
    form = _FORMS[form]
    batch = 1 if form.heads == 3 else 2
    q, k = (form.back(size * draw(batch, heads, 5, width)) for heads in (3, 1))
    angle = draw(batch, 5, turning // 2)
    cos, sin = (_LAYOUTS[layout].table(table) for table in (angle.cos(), 1.5 * angle.sin()))
    return q, k, form.give(cos), form.give(sin)


def _agrees(
    function, kind, form, dim, layout, width, turning, seed=0, size=1.0, dtypes=(_F32,) * 3, runs=False, gradient=False
) -> bool:
    """Whether Tigon's rope gives what the function gives; with `runs`, whether the function runs."""
    q, k, cos, sin = _heads(form, width, turning, layout, seed, size)
    q, k, cos, sin = q.to(dtypes[0]), k.to(dtypes[0]), cos.to(dtypes[1]), sin.to(dtypes[1])
    inputs = [x.requires_grad_(gradient) for x in (q, k)]
    dims = () if dim is None else (dim,)
    with torch.set_grad_enabled(gradient):
        try:
            want = _call(kind, function, q, k, cos, sin, dims)
        except Exception:  # whatever a stranger's function raises: it is not this layout
            return False
        if runs or not isinstance(want, tuple) or len(want) != 2:
            return runs
        tables = (torch.complex(cos, sin), None) if kind == "complex" else (cos, sin)
        got = _turn(_Way(form, layout, True, {dtypes[:2]: dtypes[2]}), q, k, *tables)
    # Stock rounds cos, both products and their sum; the two products may cancel.
    rtol = 4 * torch.finfo(dtypes[2]).eps
    same = all(close(ours, theirs, rtol, rtol * 4 * size) for ours, theirs in zip(got, want))
    if not (gradient and same):
        return same
    up = [torch.randn_like(x) for x in want]
    theirs, ours = (gradients(out, inputs, up) for out in (want, got))
    return all(b is not None and close(a, b, 1e-5, 1e-5) for a, b in zip(ours, theirs))


def _turn(way: _Way, q, k, cos, sin=None):
    """Without sin, cos is complex."""
    form = _FORMS[way.form]
    dtype = way.dtypes[q.dtype, _F32 if sin is None else cos.dtype]
    q, k = (form.into(x).to(dtype) for x in (q, k))
    if sin is None:
        turned = F.rope(q, k, form.take(cos), interleaved=True)
    else:
        turned = _LAYOUTS[way.layout].rope(q, k, form.take(cos), form.take(sin))
    return tuple(form.back(x) for x in turned)


def _takes(way: _Way | None, q, k, cos, sin) -> bool:
    """Whether a call is of the kind that was tried: the tables are as long as the tokens, and of that width."""
    if way is None or (q.dtype, cos.dtype) not in way.dtypes:
        return False
    if k.dtype != q.dtype or cos.requires_grad or sin.requires_grad or not computable(q) or k.stride(-1) != 1:
        return False
    whole = _LAYOUTS[way.layout].angles * cos.shape[-1]
    q, k = (_FORMS[way.form].into(x) for x in (q, k))
    cos, sin = (_FORMS[way.form].take(table) for table in (cos, sin))
    return (
        cos.shape == sin.shape
        and cos.shape[-2] == q.shape[2] == k.shape[2]
        and (cos.ndim == 2 or cos.shape[0] in (1, q.shape[0]))
        and k.shape[0] == q.shape[0]
        and k.shape[-1] == q.shape[-1]
        and (whole == q.shape[-1] or (way.partial and whole < q.shape[-1]))
    )


def _rotation(function: Callable, kind: str, ways: dict[tuple, _Way]) -> Callable:
    """The function, where Tigon has its case, and the stock one elsewhere."""
    parameters = _parameters(function)
    default = 1 if "unsqueeze_dim" in parameters else None

    def way_of(x, cos, dims, named_dims):
        return ways.get((x.ndim, cos.ndim, (*dims, *named_dims.values(), default)[0]))

    def rotate_one(x, cos, sin, *dims, **named_dims):
        way = way_of(x, cos, dims, named_dims)
        if not _takes(way, x, x, cos, sin):
            return function(x, cos, sin, *dims, **named_dims)
        into, back, *_ = _FORMS[way.form]
        return _turn(way, x, back(into(x)[:, :0]), cos, sin)[0]

    def rotate_complex(*args, **named):
        q, k, table = (*args, *(named[name] for name in parameters[len(args) :]))
        way = ways.get((q.ndim, table.ndim, None))
        if not table.is_complex() or not _takes(way, q, k, table.real, table.imag):
            return function(q, k, table)
        return _turn(way, q, k, table)

    def rotate(q, k=None, cos=None, sin=None, *dims, **named_dims):
        if k is None:
            return function(q, k, cos, sin, *dims, **named_dims)
        way = way_of(q, cos, dims, named_dims)
        if not _takes(way, q, k, cos, sin):
            return function(q, k, cos, sin, *dims, **named_dims)
        return _turn(way, q, k, cos, sin)

    return dict(one=rotate_one, complex=rotate_complex, two=rotate)[kind]


@functools.lru_cache(maxsize=64)
def _compare(function: Callable, dtype: torch.dtype) -> list[Pair]:
    """Pairs (stock, Tigon's) of what a call gives, for the heads that were recognised, of other extents than before."""
    kind, pairs = _kind(_parameters(function)), []
    rotation = _rotation(function, kind, _recognise(function))
    for (*_, dim), way in _recognise(function).items():
        for width in (64, 128) if way.partial else (64,):
            q, k, cos, sin = _heads(way.form, width, 64, way.layout, 3, 1.0)
            q, k = q.to(dtype), k.to(dtype)
            dims = () if dim is None else (dim,)
            old, new = (_call(kind, f, q, k, cos, sin, dims) for f in (function, rotation))
            pairs += [Pair(a, b, 6, 2) for a, b in zip(old, new)]
    return pairs
