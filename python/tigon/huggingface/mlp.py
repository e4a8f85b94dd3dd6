"""MLPs with an operator: gated ones, down(act(gate(x)) * up(x)), and down(relu(up(x))^2)."""

import functools
import inspect
from collections.abc import Callable
from functools import partial
from itertools import permutations, product
from typing import NamedTuple

import torch
from torch import nn

from ..torch import functional as F
from ..torch._autograd import autocasting
from ..torch.operators.mlp import of_modules
from .experts import holds_experts
from .replacement import Left, Method, Replacement, computable, few, is_distributed
from .trials import Differs, Given, close, compare_rows, generator, gradients, once, run


class _Gate(NamedTuple):
    """An operator, and the size of what it multiplies: torch's erf is off by 1e-6 of that where 1 + erf(x) cancels."""

    operator: Callable
    size: Callable


def _product(gate, up):
    return gate * up


def _halves(gate_up):
    return _product(*gate_up.chunk(2, -1))


_SEPARATE = {
    "SiLU": _Gate(F.swiglu, _product),
    "GELU (tanh)": _Gate(F.geglu, _product),
    "GELU (erf)": _Gate(partial(F.geglu, approximate="none"), _product),
}
_PACKED = {
    "SiLU": _Gate(F.swiglu_packed, _halves),
    "GELU (tanh)": _Gate(F.geglu_packed, _halves),
    "GELU (erf)": _Gate(partial(F.geglu_packed, approximate="none"), _halves),
}
_TILED = {"SiLU": "silu", "GELU (tanh)": "gelu_tanh", "GELU (erf)": "gelu"}
_TOKENS = 65536  # the report says what tiles save at this number
_SQUARED = {"ReLU squared": _Gate(F.relu_squared, torch.zeros_like)}


class _Trial(NamedTuple):
    """x is of that size; the projections' answers go from 1e-3 to 1e3 whatever x is."""

    training: bool = False
    size: float = 1.0
    seed: int = 0
    shape: tuple[int, ...] = (4,)
    dtype: torch.dtype = torch.float32
    gradient: bool = False

    def __str__(self):
        mode = "training" if self.training else "evaluation"
        return f"in {mode} mode, x {str(self.dtype).removeprefix('torch.')} of size {self.size:g}"


_MODES = False, True
_TRIALS = [
    *(_Trial(*own) for own in product(_MODES, (1.0, 1e-3, 30.0, 300.0), (0, 1), ((4,), (2, 3)))),
    *(_Trial(mode, size, dtype=d) for mode in _MODES for size in (1.0, 30.0) for d in (torch.bfloat16, torch.float16)),
    *(_Trial(mode, gradient=True) for mode in _MODES),
]


def find_mlp(module: nn.Module, tiled: bool = False) -> Replacement | Left | None:
    """A replacement that calls the projections and a gate, or with `tiled` one that takes their weights in one operator."""
    made = _recognise(module)
    return made(tiled) if callable(made) else made


@once
def _recognise(module: nn.Module):
    """An MLP has projections H -> I, H -> I, I -> H, or H -> 2I, I -> H, or H -> I, I -> H. Nothing else in it learns.

    Which projection is which, and the activation, are found by running the module's own forward with projections that
    answer with known numbers. The projections stay modules that are called: their hooks, adapters and quantisation keep
    working."""
    if type(module).forward is nn.Module.forward:  # a list of modules
        return None
    if holds_experts(module):
        return None
    projections = {name: child for name, child in module.named_children() if hasattr(child, "out_features")}
    if len(projections) not in (2, 3):
        return None
    roles = [order for order in permutations(projections) if _fits([projections[name] for name in order])]
    if not roles:
        return None
    gated = len(projections) == 3
    arguments = list(inspect.signature(type(module).forward).parameters)[1:]
    theirs = {id(t) for child in projections.values() for t in (*child.parameters(), *child.buffers())}
    held = (*module.named_parameters(), *module.named_buffers())  # a buffer may be loaded after the patch
    others = [name for name, tensor in held if id(tensor) not in theirs]
    if len(arguments) > 3:  # a layer, or an attention
        return None
    if len(arguments) != 1 or others:
        reason = f"it has other parameters or buffers: {few(others)}" if others else f"its forward takes {few(arguments)}"
        narrow, wide = _widths(module, roles[0])[:2]
        # Three of one width may be queries, keys and values; what has parameters of its own may be a state space model.
        looks = narrow != wide if gated else narrow < wide and not module._parameters
        return Left(reason) if looks else None

    seen = None
    for order in roles:
        gates = _SEPARATE if gated else _PACKED if _is_packed(projections, order) else _SQUARED
        for activation, gate in gates.items():
            found = _with_options(module, order, gate) if activation == "SiLU" else _Found(gate)
            try:
                called = _try(module, order, found, _TRIALS[0])
                found = found._replace(called=called, tiled=_TILED.get(activation))
            except Exception as error:  # whatever a stranger's forward raises: it is not the one looked for
                seen = seen or error
                continue
            for trial in _TRIALS[1:]:
                try:
                    _try(module, order, found, trial)
                except Exception as error:
                    return Left(f"it is down({activation}) but for this: {_said(error)} ({trial})")
            packed = ", packed" if gates is _PACKED else ""
            return partial(partial, _replacement, order, found, activation + found.text + packed)
    if gates is _SQUARED:  # a plain MLP with another activation: no operator is for it
        return None
    return Left(f"its forward is not down(act(gate(x)) * up(x)) with act one of {', '.join(_SEPARATE)}: {_said(seen)}")


def _replacement(order, found: "_Found", detail: str, module: nn.Module, tiled: bool) -> Replacement:
    forward = _forward(order, found)
    if tiled:
        projections = [getattr(module, name) for name in order]
        obstacle = None if found.tiled else "no operator is for its activation"
        obstacle = obstacle or next((why for name in order if (why := _own_way(name, getattr(module, name)))), None)
        if obstacle:
            detail += f"; not tiled: {obstacle}"
        else:
            forward = _tiled_forward(order, found, forward)
            bytes_a_token = 3 * projections[-1].in_features * projections[-1].weight.element_size()
            size = f"{bytes_a_token * _TOKENS / 2**30:.3g} GiB at {_TOKENS} tokens"
            detail += f", tiled: for backward {bytes_a_token} bytes a token less than untiled, {size}"
    narrow, wide = _widths(module, order)[:2]
    comparison = compare_rows(module, forward, (2, 2, narrow), roundings=4, terms=wide)
    return Replacement(detail, (Method(module, "forward", forward),), comparison)


def _own_way(name: str, projection: nn.Module) -> str | None:
    """Why a projection is called, where an operator would take its weight."""
    if type(projection) is not nn.Linear:
        return f"its {name} is a {type(projection).__name__}"
    if "forward" in vars(projection):
        return f"its {name} has a forward of its own"
    hooks = "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"
    return f"its {name} has hooks" if any(getattr(projection, kind) for kind in hooks) else None


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, Differs) else f"its forward raises {type(error).__name__}"


def _fits(order: list[nn.Module]) -> bool:
    """order: gate, up, down, or gate_up, down, or up, down."""
    *inputs, down = order
    wide = sum(projection.out_features for projection in inputs)
    same = len({(projection.in_features, projection.out_features) for projection in inputs}) == 1
    whole = wide == 2 * down.in_features or (len(inputs) == 1 and wide == down.in_features)
    return same and whole and down.out_features == inputs[0].in_features


def _is_packed(projections, order) -> bool:
    into, down = (projections[name] for name in order)
    return into.out_features == 2 * down.in_features


class _Found(NamedTuple):
    """What the module computes between its projections, and the factors of the gate and of the output."""

    gate: _Gate
    factor: float = 1.0  # factor of the gate
    after: float = 1.0
    text: str = ""
    called: tuple[str, ...] = ()  # the projections, but for the last, in the order of their calls
    tiled: str | None = None  # the operator mlp's activation


def _forward(order: tuple[str, ...], found: _Found):
    *inputs, down = order
    gate, after = found.gate.operator, found.after

    def forward(self, x):
        if not computable(x):
            return type(self).forward(self, x)
        answers = {name: getattr(self, name)(x) for name in found.called}  # what is random in them stays in its order
        y = getattr(self, down)(gate(*[answers[name] for name in inputs]))
        return y if after == 1 else y * after

    return forward


def _tiled_forward(order: tuple[str, ...], found: _Found, untiled):
    """mlp of the weights, where the projections are plain ones at the call, too."""
    own = getattr(found.gate.operator, "keywords", {}) if found.tiled == "silu" else {}
    options, after = {"activation": found.tiled} | own, found.after

    def forward(self, x):
        *inputs, down = projections = [getattr(self, name) for name in order]
        weights = [projection.weight for projection in projections]
        same = autocasting(x) or all(w.dtype == x.dtype for w in weights)
        plain = all(_own_way("", projection) is None for projection in projections)
        if not (computable(x, *weights) and same and plain) or any(map(is_distributed, weights)):
            return untiled(self, x)
        gate, up = (*inputs, None)[:2]
        y = of_modules(x, gate, up, down, **options)
        return y if after == 1 else y * after

    return forward


def _with_options(module: nn.Module, order: tuple[str, ...], gate: _Gate) -> _Found:
    """The factors of the gate and of the output, and the clamp, as answers far apart show them; the trials try them."""
    widths = _widths(module, order)
    x = out = torch.ones(1, widths[0], dtype=torch.float64)

    def probe(gate, up):
        """(what the last projection is given, the output) of constant answers."""
        answers = [torch.full((1, wide), value, dtype=torch.float64) for wide, value in zip(widths[1:], (gate, up))]
        if len(answers) == 1:
            answers[0][..., widths[1] // 2 :] = up
        given, result, _ = _run(module, order, x, answers, out, False)
        return given.flatten()[0].item(), result.flatten()[0].item()

    try:
        straight = probe(1.0, 1e-3)[0] * 1e3
        (flat, _), (slope, after) = probe(1.0, 1e8), probe(1e-11, 1e-3)
    except Exception:  # whatever a stranger's forward raises: the trial says so
        return _Found(gate)
    factor, after = (float(f"{value:.10g}") for value in (2e14 * slope, after))
    options, text = {}, ""
    if factor > 0 and factor != 1:
        options["gate_multiplier"], text = factor, f", gate * {factor:g}"
    if straight > 0 and 0 < flat < 1e7 * straight:
        options["limit"] = float(f"{flat / straight:.10g}")
        text += f", clamped to {options['limit']:g}"
    if after != 1:
        text += f", output * {after:g}"
    return _Found(gate._replace(operator=partial(gate.operator, **options)), factor, after, text)


def _widths(module: nn.Module, order: tuple[str, ...]) -> tuple[int, ...]:
    """H, and the width of each answer."""
    return getattr(module, order[0]).in_features, *(getattr(module, name).out_features for name in order[:-1])


@functools.lru_cache(maxsize=64)
def _numbers(widths: tuple[int, ...], trial: _Trial) -> list[torch.Tensor]:
    """x [.., H], the output [.., H] of the last projection, and the answers [.., I] of the others.

    Every other row of an answer is normal, the others go from 1e-3 to 1e3 in size."""
    numbers = generator(trial.seed)
    draw = partial(torch.randn, generator=numbers, dtype=torch.float32)
    x, out = (draw(*trial.shape, widths[0]) * size for size in (trial.size, 300.0))
    answers = []
    for wide in widths[1:]:
        answer = 2 * draw(*trial.shape, wide)
        spread = torch.rand(*trial.shape, wide, generator=numbers, dtype=torch.float32) * 6 - 3
        answer.flatten(0, -2)[1::2] = (answer.sign() * 10**spread).flatten(0, -2)[1::2]
        answers.append(answer.clamp(-200, 200) if trial.dtype == torch.float16 else answer)  # products stay finite
    return [tensor.to(trial.dtype) for tensor in (x, out, *answers)]


def _run(module: nn.Module, order: tuple[str, ...], x, answers, out, training: bool):
    """What the last projection is given [rows, I], the output, and the order of calls, of the module's own forward."""
    *inputs, down = order
    calls = []

    def answer_with(name, answer):
        def answers(seen):
            same = seen.shape[-1] == x.shape[-1] and seen.dtype == x.dtype
            if not same or not torch.equal(seen.reshape(-1, x.shape[-1]), x.flatten(0, -2)):
                raise Differs("its projections are given another x than it is")
            if x.requires_grad and not (
                seen.requires_grad and torch.equal(*torch.autograd.grad(seen, x, x.detach(), retain_graph=True), x)
            ):
                raise Differs("x has another gradient than its projections give")
            calls.append(name)
            return answer.reshape(*seen.shape[:-1], -1).clone()

        return answers

    def last(seen):
        calls.append(seen.reshape(-1, seen.shape[-1]))
        return out.reshape(*seen.shape[:-1], -1).clone()

    places = {name: answer_with(name, answer) for name, answer in zip(inputs, answers)} | {down: last}
    children = {name: Given(answer, getattr(module, name)) for name, answer in places.items()}
    result = run(module, x, training=training, children=children)
    *called, given = calls or [None]
    if not isinstance(given, torch.Tensor) or sorted(called) != sorted(inputs):
        raise Differs("it does not call each projection once")
    return given, result, tuple(called)


def _try(module: nn.Module, order: tuple[str, ...], found: _Found, trial: _Trial) -> tuple[str, ...]:
    """Differs if the module's forward is another in this trial; else the order in which it calls its projections."""
    x, out, *answers = _numbers(_widths(module, order), trial)
    if trial.gradient:
        x, out, *answers = (tensor.clone().requires_grad_() for tensor in (x, out, *answers))
    with torch.set_grad_enabled(trial.gradient):
        given, result, called = _run(module, order, x, answers, out, trial.training)
        got = found.gate.operator(*answers).flatten(0, -2)
        after = out if found.after == 1 else out * found.after
    rtol = 4 * torch.finfo(trial.dtype).eps  # a stock gate rounds three times, Tigon's once
    wide = [answer.detach().double() for answer in answers]
    atol = 1e-6 * found.gate.size(*wide).abs().flatten(0, -2)
    step = torch.finfo(trial.dtype).tiny * torch.finfo(trial.dtype).eps  # the step of subnormal numbers, times up
    atol = atol + 2 * step * (1 + wide[-1][..., -got.shape[-1] :].abs().flatten(0, -2))
    if found.factor != 1:  # stock rounds factor * gate, too, which exp makes that many times larger
        argument = (found.factor * wide[0][..., : got.shape[-1]]).flatten(0, -2)
        atol = atol + rtol / 4 * argument.abs() * got.double().abs()
    if not close(got, given, rtol, atol):
        raise Differs("what its last projection is given is another")
    if not close(after, result, 0.0 if found.after == 1 else rtol):
        raise Differs("its output is not what its last projection gives")
    if trial.gradient:
        _try_gradients((got, given), answers)
        _try_gradients((after, result), [out])
    return called


def _try_gradients(pair, inputs: list[torch.Tensor]) -> None:
    """The gradients of both, of a derivative that is 1 everywhere."""
    got, want = (gradients([y], inputs, [torch.ones_like(y)]) for y in pair)
    # silu' cancels where it is 0, and erf's error is there, too; other answers multiply it.
    size = functools.reduce(lambda a, b: a * b, (1 + value.detach().abs().amax(-1, True) for value in inputs))
    if not all(theirs is not None and close(ours, theirs, 1e-5, 2e-6 * size) for ours, theirs in zip(got, want)):
        raise Differs("its gradient is another")
