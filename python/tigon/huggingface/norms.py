"""Normalisation layers: RMSNorms by what they compute, torch's LayerNorm and GroupNorm by their class."""

import copy
import inspect
import re

import torch
from torch import nn

from ..torch import functional as F
from .replacement import Left, Method, Replacement, computable, is_distributed

# (weight offset, casting), the first that agrees wins
_CONVENTIONS = {
    "Llama": (0.0, "llama"),
    "Gemma": (1.0, "gemma"),
    "OLMo 2": (0.0, "gemma"),
}


def find_rms_norm(module: nn.Module) -> Replacement | Left | None:
    """An RMSNorm is a module with an eps, at most one parameter, a vector, and no children.

    Which of the conventions of tigon.torch.functional.rms_norm it follows is found by running its own forward on small
    random rows, in f32 and bf16, with a random weight in place of its own."""
    eps_name = next((name for name in vars(module) if re.search("(^|_)eps(ilon)?$", name)), None)
    of_torch = type(module).__module__.startswith("torch.nn") and type(module) is not nn.RMSNorm
    inner = [*module.children(), *module.buffers(recurse=False)]
    if eps_name is None or of_torch or inner:
        return None
    parameters = dict(module.named_parameters(recurse=False))
    if len(parameters) > 1 or any(weight.ndim != 1 for weight in parameters.values()):
        return Left("not an RMSNorm of rows: its parameters are " + (", ".join(parameters) or "none"))
    arguments = list(inspect.signature(type(module).forward).parameters)[1:]
    if len(arguments) != 1:
        return Left(f"its forward takes {', '.join(arguments)}")
    eps = getattr(module, eps_name)
    if not isinstance(eps, float):
        return Left(f"its {eps_name} is {eps!r}, must be a float")

    name = next(iter(parameters), None)
    convention = _convention(module, name, eps)
    if isinstance(convention, Left):
        return convention
    offset, casting = _CONVENTIONS[convention]

    def forward(self, x):
        weight = None if name is None else getattr(self, name)
        if not computable(x, weight):
            return type(self).forward(self, x)
        return F.rms_norm(x, weight, eps, offset, casting)

    return Replacement(f"{convention}, eps {eps:g}", (Method(module, "forward", forward),))


def _convention(module: nn.Module, name: str | None, eps: float) -> str | Left:
    """The convention that gives the module's own bits, but for a rounding in a hundred elements."""
    weight = None if name is None else getattr(module, name)
    channels = getattr(module, "normalized_shape", (64,))[-1] if weight is None else weight.numel()
    generator = torch.Generator().manual_seed(0)
    # [8, C]; in the last rows mean(x^2) is about eps, so that where eps is added shows
    rows = torch.randn(8, channels, generator=generator) * torch.tensor([1.0] * 4 + [eps**0.5] * 4)[:, None]
    scale = torch.rand(channels, generator=generator) * 2 - 1

    def differing(offset, casting, dtype):
        x, w = rows.to(dtype), None if weight is None else scale.to(dtype)
        want, got = _own_forward(module, name, w, x), F.rms_norm(x, w, eps, offset, casting)
        if not isinstance(want, torch.Tensor) or (want.shape, want.dtype) != (got.shape, got.dtype):
            return 1.0
        if dtype == torch.float32:
            return float(not torch.allclose(got, want, rtol=1e-5, atol=1e-6))
        return (got != want).float().mean().item()

    try:
        for convention, parameters in _CONVENTIONS.items():
            if differing(*parameters, torch.float32) == 0 and differing(*parameters, torch.bfloat16) < 0.01:
                return convention
    except Exception as error:  # whatever a stranger's forward raises
        return Left(f"its forward does not run on rows of {channels}: {error}")
    return Left("its forward is no convention of rms_norm: " + ", ".join(_CONVENTIONS))


def _own_forward(module: nn.Module, name: str | None, weight: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    twin = copy.copy(module)
    if name is not None:
        twin._parameters = module._parameters | {name: nn.Parameter(weight)}
    with torch.no_grad():
        return type(module).forward(twin, x)


def find_layer_norm(module: nn.Module) -> Replacement | Left | None:
    if type(module) is not nn.LayerNorm:
        return None
    if len(module.normalized_shape) != 1:
        return Left(f"it normalises {len(module.normalized_shape)} dimensions at once, must be 1")

    def forward(self, x):
        if not computable(x, self.weight) or is_distributed(x):
            return type(self).forward(self, x)
        return F.layer_norm(x, self.weight, self.bias, self.eps)

    return Replacement(f"eps {module.eps:g}", (Method(module, "forward", forward),))


def find_group_norm(module: nn.Module) -> Replacement | None:
    if type(module) is not nn.GroupNorm:
        return None

    def forward(self, x):
        if not computable(x, self.weight) or is_distributed(x):
            return type(self).forward(self, x)
        return F.group_norm(x, self.num_groups, self.weight, self.bias, self.eps)

    return Replacement(f"{module.num_groups} groups, eps {module.eps:g}", (Method(module, "forward", forward),))
