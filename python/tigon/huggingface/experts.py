"""The experts of a mixture: sums over a token's choices of weight * down(act(gate(x)) * up(x)), with stacked weights."""

import inspect
import math
from functools import partial
from itertools import permutations
from typing import NamedTuple

import torch
from torch import nn

from ..torch import functional as F
from ..torch._autograd import autocasting
from .replacement import Left, Method, Pair, Replacement, computable, few, is_distributed
from .trials import Differs, Unrunnable, generator, gradients, once, run, seed, twin

_HIDDEN, _INNER = 16, 8  # sizes of the trials' own weights


class _Layout(NamedTuple):
    """The names of the parameters; `turned`: weights are [E, H, 2 I] and [E, I, H]."""

    gate_up: str
    down: str
    turned: bool
    gate_up_bias: str | None = None
    down_bias: str | None = None


class _Trial(NamedTuple):
    training: bool = False
    size: float = 1.0
    seed: int = 0
    choices: int = 2
    dtype: torch.dtype = torch.float32
    gradient: bool = False

    def __str__(self):
        mode = "training" if self.training else "evaluation"
        return f"in {mode} mode, x {str(self.dtype).removeprefix('torch.')} of size {self.size:g}"


_MODES = False, True
_TRIALS = [
    *(_Trial(mode, size, seed, 1 + seed) for mode in _MODES for size in (1.0, 1e-2, 30.0) for seed in (0, 1)),
    *(_Trial(mode, dtype=dtype) for mode in _MODES for dtype in (torch.bfloat16, torch.float16)),
    *(_Trial(mode, size, gradient=True) for mode in _MODES for size in (1.0, 10.0)),
]


def holds_experts(module: nn.Module) -> bool:
    """[E, 2I, H] and [E, H, I], or transposed, or [E, I, H] and [E, H, I], in the module or in two of its children; or
    three matrices [E * I, H]."""
    children = [] if any(map(holds_experts, module.children())) else [*module.children()]
    holders = [module, *(child for child in children if not isinstance(child, nn.modules.conv._ConvNd))]
    stacks = [p.shape[1:] for holder in holders for p in holder.parameters(recurse=False) if p.ndim == 3]
    flat = [p.shape for p in module._parameters.values() if p is not None and p.ndim == 2]
    return len(flat) == 3 == flat.count(flat[0]) or any(
        a in ((2 * b[1], b[0]), (b[1], 2 * b[0]), (b[1], b[0]))
        for a, b in permutations(map(tuple, stacks), 2)
        if min(*a, *b) > 1
    )


@once
def find_experts(module: nn.Module) -> Replacement | Left | None:
    """Experts have two stacks of weights, with biases or without, and a forward of rows, the experts of each and their
    weights. How gate and up lie, the activation and its numbers are found by running the module's own forward with
    weights that show them; trials with random weights follow."""
    if type(module).forward is nn.Module.forward or not holds_experts(module):
        return None
    layouts = _layouts(module)
    if isinstance(layouts, Left):
        return layouts
    arguments = list(inspect.signature(type(module).forward).parameters)[1:]
    if len(arguments) != 3:
        return Left(f"its forward takes {', '.join(arguments)}")
    seen = None
    for layout in layouts:
        for interleaved in (False, True):
            try:
                options = _options(module, layout, interleaved)
                _try(module, layout, options, _TRIALS[0])
            except Exception as error:  # whatever a stranger's forward raises: it is not the one looked for
                seen = seen or error
                continue
            for trial in _TRIALS[1:]:
                try:
                    _try(module, layout, options, trial)
                except Exception as error:
                    return Left(f"it is {_text(options)} but for this: {_said(error)} ({trial})")
            return partial(_replacement, layout, options, arguments)
    return Left(f"its forward is not the sum of weight * down(act(gate(x)) * up(x)): {_said(seen)}")


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, Differs) else f"its forward raises {type(error).__name__}"


def _text(options: dict) -> str:
    named = {"silu": "SiLU", "gelu_tanh": "GELU (tanh)"}[options["activation"]]
    numbers = [f"{name} {value:g}" for name, value in options.items() if type(value) is float]
    return ", ".join([f"experts with {named}", *numbers, *["interleaved"] * options["interleaved"]])


# ---- structure ----


def _layouts(module: nn.Module) -> list[_Layout] | Left:
    own = {name: p for name, p in module.named_parameters(recurse=False)}
    held = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]
    stacks = [name for name, p in own.items() if p.ndim == 3]
    vectors = [name for name, p in own.items() if p.ndim == 2]
    if len(stacks) != 2 or len(vectors) not in (0, 2) or len(stacks) + len(vectors) != len(held):
        return Left(f"its experts are not two stacks, with biases of both or none: they have {few(held)}")
    found = []
    for gate_up, down in permutations(stacks):
        (experts, *a), (others, *b) = own[gate_up].shape, own[down].shape
        for turned in (False, True):
            (wide, hidden), (out, inner) = (a, b) if not turned else (a[::-1], b[::-1])
            if experts != others or wide != 2 * inner or out != hidden:
                continue
            for biases in permutations(vectors) if vectors else [(None, None)]:
                shapes = [None if name is None else tuple(own[name].shape) for name in biases]
                if shapes in ([None, None], [(experts, wide), (experts, hidden)]):
                    found.append(_Layout(gate_up, down, turned, *biases))
    return found or Left("its experts are not gate and up in one stack, and down")


def _stacks(layout: _Layout, gate_up, down, gate_up_bias=None, down_bias=None) -> dict:
    """Parameters by name, of weights [E, 2 I, H] and [E, H, I]."""
    lies = (lambda t: t.transpose(1, 2).contiguous()) if layout.turned else (lambda t: t)
    made = {layout.gate_up: lies(gate_up), layout.down: lies(down)}
    made |= {layout.gate_up_bias: gate_up_bias, layout.down_bias: down_bias}
    return {name: nn.Parameter(t, t.requires_grad) for name, t in made.items() if name is not None}


# ---- what it computes ----


def _options(module: nn.Module, layout: _Layout, interleaved: bool) -> dict:
    """What the forward gives for gates and ups that are known shows the numbers; the trials try them."""
    experts = getattr(module, layout.down).shape[0]
    tiny, far = 2.0**-20, 1e4
    pairs = torch.tensor([(1, 0.5), (1, 0), (tiny, 0.5), (1, far)] + [(1, 0.5)] * (_INNER - 4))
    halves = pairs.T.reshape(-1) if not interleaved else pairs.reshape(-1)
    gate_up = torch.zeros(experts, 2 * _INNER, _HIDDEN)
    gate_up[:, :, 0] = halves
    down = torch.eye(_HIDDEN)[:, :_INNER].expand(experts, -1, -1).clone()
    zeros = [torch.zeros(experts, width) for width in (2 * _INNER, _HIDDEN)]
    x = torch.eye(_HIDDEN)[:1]
    parameters = _stacks(layout, gate_up, down, *zeros)
    result = run(module, x, torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1), parameters=parameters)
    at_half, at_none, at_tiny, at_far = result[0, :4].double().tolist()
    by_up = 2 * (at_half - at_none)  # by up, at gate 1
    if not by_up or not math.isfinite(by_up):
        raise Differs("its gate does not multiply up")
    offset = at_none / by_up
    slope = 2 * at_tiny / (tiny * (0.5 + offset))  # slope of the output by the gate, twice that of act at 0
    share = by_up / slope if slope else 0.0
    if not 0 < share < 1 or share == 0.5:
        raise Differs("its activation is neither SiLU nor GELU (tanh)")
    gelu = abs(share - 0.8411920) < 1e-5
    gate = 1.0 if gelu else _plain(math.log(share / (1 - share)))
    numbers = {"gate_multiplier": gate, "down_multiplier": _plain(slope) / gate, "up_offset": _plain(offset)}
    limit = at_far / by_up - offset
    if limit < far / 2:
        numbers["limit"] = _plain(limit)
    usual = {"gate_multiplier": 1.0, "down_multiplier": 1.0, "up_offset": 0.0}
    kept = {name: value for name, value in numbers.items() if value != usual.get(name)}
    return {"activation": "gelu_tanh" if gelu else "silu", "interleaved": interleaved, **kept}


def _plain(value: float) -> float:
    """The number of five digits that f32's rounding errors have blurred."""
    return 0.0 if abs(value) < 1e-5 else float(f"{value:.5g}")


def _compute(layout: _Layout, options: dict, x, index, weights, parameters):
    """What takes the forward's place; parameters by name."""
    straight = lambda name: parameters[name].transpose(1, 2) if layout.turned else parameters[name]
    biases = [None if name is None else parameters[name] for name in (layout.gate_up_bias, layout.down_bias)]
    return F.fused_moe(x, index, weights, straight(layout.gate_up), straight(layout.down), *biases, **options)


def _numbers(experts: int, trial: _Trial):
    """x, the choices and their weights, and the parameters of _stacks."""
    numbers = generator(trial.seed)
    draw = partial(torch.randn, generator=numbers, dtype=torch.float32)
    rows = 12
    x = draw(rows, _HIDDEN) * trial.size
    index = torch.rand(rows, experts, generator=numbers).argsort(-1)[:, : min(trial.choices, experts)]
    weights = torch.rand(index.shape, generator=numbers) * 2 - 0.5
    own = draw(experts, 2 * _INNER, _HIDDEN) / 4, draw(experts, _HIDDEN, _INNER) / 4
    biases = draw(experts, 2 * _INNER), draw(experts, _HIDDEN)
    return [x.to(trial.dtype), index, weights.to(trial.dtype)], [t.to(trial.dtype) for t in (*own, *biases)]


def _try(module: nn.Module, layout: _Layout, options: dict, trial: _Trial) -> None:
    """Differs if the module's forward is another in this trial."""
    (x, index, weights), own = _numbers(getattr(module, layout.down).shape[0], trial)
    if trial.gradient:
        x, weights = (t.requires_grad_() for t in (x, weights))
        own = [t.requires_grad_() for t in own]
    with torch.set_grad_enabled(trial.gradient):
        parameters = _stacks(layout, *own)
        want = run(module, x, index, weights, training=trial.training, parameters=parameters)
        got = _compute(layout, options, x, index, weights, parameters)
    _compare("output", want, got)
    if trial.gradient:
        inputs = [x, weights, *parameters.values()]
        upstream = torch.randn(got.shape, generator=generator(trial.seed + 1))
        theirs, ours = (gradients([y], inputs, [upstream]) for y in (want, got))
        for mine, other in zip(ours, theirs):
            _compare("gradient", other, mine)


def _compare(what: str, want, got) -> None:
    difference = Pair(want, got, roundings=10, terms=4 * _HIDDEN).difference()
    if difference:
        raise Differs(f"of its {what}, {difference}")


# ---- in its place ----


def _forward(layout: _Layout, options: dict, arguments: list[str]):
    names = [name for name in (layout.gate_up, layout.down, layout.gate_up_bias, layout.down_bias) if name is not None]

    def forward(self, *args, **kwargs):
        x, index, weights = (*args, *[kwargs[name] for name in arguments[len(args) :]])
        parameters = {name: getattr(self, name) for name in names}
        if not _is_computable(x, index, weights, parameters):
            return type(self).forward(self, *args, **kwargs)
        return _compute(layout, options, x, index, weights, parameters).to(x.dtype)

    return forward


def _is_computable(x, index, weights, parameters) -> bool:
    given = *parameters.values(), weights
    same = autocasting(x) or all(p.dtype == x.dtype for p in parameters.values())
    return (
        computable(x, weights)
        and same
        and index.dtype in (torch.int32, torch.int64)
        and x.ndim == index.ndim == weights.ndim
        and all(type(t) in (torch.Tensor, nn.Parameter) and not is_distributed(t) for t in given)
    )


def _replacement(layout: _Layout, options: dict, arguments: list[str], module: nn.Module) -> Replacement:
    forward = _forward(layout, options, arguments)

    def compare(training: bool) -> list[Pair]:
        down = getattr(module, layout.down)
        experts, hidden = down.shape[0], down.shape[2 if layout.turned else 1]
        numbers = generator(0)
        x = torch.randn(6, hidden, generator=numbers)
        index = torch.rand(6, experts, generator=numbers).argsort(-1)[:, : min(2, experts)]
        weights = torch.rand(index.shape, generator=numbers)
        given = [x.to(down.device, down.dtype), index.to(down.device), weights.to(down.device, down.dtype)]
        seed(0, down.device)
        try:
            old = type(module).forward(twin(module, training), *given)
        except Exception as error:  # whatever a stranger's forward raises
            raise Unrunnable(f"its own forward raises {type(error).__name__} on rows [6, {hidden}]: {error}") from None
        return [Pair(old, forward(twin(module, training), *given), roundings=10, terms=2 * max(down.shape[1:]))]

    return Replacement(_text(options), (Method(module, "forward", forward),), compare)
