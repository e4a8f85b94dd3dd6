"""Gated MLPs: down(act(gate(x)) * up(x)), with two projections in or one packed."""

import copy
import inspect
from functools import partial
from itertools import permutations

import torch
from torch import nn

from ..torch import functional as F
from .replacement import Left, Method, Replacement, computable

_SEPARATE = {
    "SiLU": F.swiglu,
    "GELU (tanh)": F.geglu,
    "GELU (erf)": partial(F.geglu, approximate="none"),
}
_PACKED = {
    "SiLU": F.swiglu_packed,
    "GELU (tanh)": F.geglu_packed,
    "GELU (erf)": partial(F.geglu_packed, approximate="none"),
}


def find_gated_mlp(module: nn.Module) -> Replacement | Left | None:
    """A gated MLP has projections H -> I, H -> I, I -> H, or H -> 2I, I -> H, and nothing else that learns.

    Which projection is which, and the activation, are found by running the module's own forward with projections that
    answer with fixed random numbers. The projections stay modules that are called: their hooks, adapters and
    quantisation keep working."""
    if _holds_experts(module):
        return Left("its weights are those of several experts [experts, out, in]: Tigon has no grouped product")
    projections = {name: child for name, child in module.named_children() if hasattr(child, "out_features")}
    if len(projections) not in (2, 3) or len(inspect.signature(type(module).forward).parameters) != 2:
        return None
    theirs = {parameter for child in projections.values() for parameter in child.parameters()}
    if theirs != set(module.parameters()):
        return None
    roles = [order for order in permutations(projections) if _fits([projections[name] for name in order])]
    if not roles:
        return None

    for order in roles:
        for activation, gate in (_SEPARATE if len(order) == 3 else _PACKED).items():
            if _agrees(module, order, gate):
                packed = ", packed" if len(order) == 2 else ""
                return Replacement(activation + packed, (Method(module, "forward", _forward(order, gate)),))
    return Left("its forward is not down(act(gate(x)) * up(x)) with act one of " + ", ".join(_SEPARATE))


def _holds_experts(module: nn.Module) -> bool:
    """[E, 2I, H] and [E, H, I], or transposed."""
    stacks = [parameter for parameter in module.parameters(recurse=False) if parameter.ndim == 3]
    return any(a.shape[0] == b.shape[0] and a.numel() == 2 * b.numel() for a, b in permutations(stacks, 2))


def _fits(order: list[nn.Module]) -> bool:
    """order: gate, up, down, or gate_up, down."""
    *inputs, down = order
    wide = sum(projection.out_features for projection in inputs)
    same = len({(projection.in_features, projection.out_features) for projection in inputs}) == 1
    return same and wide == 2 * down.in_features and down.out_features == inputs[0].in_features


def _forward(order: tuple[str, ...], gate):
    *inputs, down = order

    def forward(self, x):
        if not computable(x):
            return type(self).forward(self, x)
        return getattr(self, down)(gate(*[getattr(self, name)(x) for name in inputs]))

    return forward


class _Answer(nn.Module):
    """A projection whose output is known; the one out of the MLP hands on what it is given."""

    def __init__(self, output: torch.Tensor | None):
        super().__init__()
        self.output = output

    def forward(self, x):
        return x if self.output is None else self.output


def _agrees(module: nn.Module, order: tuple[str, ...], gate) -> bool:
    *inputs, down = order
    generator = torch.Generator().manual_seed(0)
    outputs = [torch.randn(4, getattr(module, name).out_features, generator=generator) * 2 for name in inputs]
    twin = copy.copy(module)
    answers = {name: _Answer(output) for name, output in zip(inputs, outputs)} | {down: _Answer(None)}
    twin._modules = module._modules | answers
    with torch.no_grad():
        try:
            want = type(module).forward(twin, torch.zeros(4, getattr(module, inputs[0]).in_features))
        except Exception:  # whatever a stranger's forward raises: it is not the one looked for
            return False
        got = gate(*outputs)
    # torch's own erf is off by 1e-6; the two GELUs differ by up to 5e-4
    return isinstance(want, torch.Tensor) and want.shape == got.shape and torch.allclose(got, want, 1e-5, 1e-5)
