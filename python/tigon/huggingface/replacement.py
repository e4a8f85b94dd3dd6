"""What a detector finds in a module, and how it is put in place and taken back.

A method is replaced on the instance (`types.MethodType` in the module's `__dict__`): the class, other models of it, the
parameters and their names stay what they are. A deep copy of a patched model is patched; a pickled one is stock."""

import types
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from ..torch import _sharding

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_DEVICES = ("cpu", "cuda", "npu")


@dataclass(frozen=True)
class Method:
    """`function`, to become the method `name` of `owner`."""

    owner: nn.Module
    name: str
    function: Callable

    @property
    def slot(self) -> str:
        """The attribute that holds it: accelerate's hooks (`device_map`) are in `forward` and call `_old_forward`."""
        hooked = self.name == "forward" and "_hf_hook" in vars(self.owner)
        return "_old_forward" if hooked else self.name

    def obstacle(self) -> str | None:
        """Why it cannot be put in place: somebody else's forward is there."""
        present = vars(self.owner).get(self.slot) if self.slot == "forward" else None
        if present is None or getattr(present, "__func__", None) is type(self.owner).forward:
            return None
        return f"its forward was replaced before, by {getattr(present, '__qualname__', type(present).__name__)}"

    def install(self) -> None:
        self.function.of_tigon = True
        self.function.__name__ = self.name.removeprefix("_")  # by which pickle finds a method: the class's own
        vars(self.owner)[self.slot] = types.MethodType(self.function, self.owner)


@dataclass(frozen=True)
class Replacement:
    """A structure that was recognised: what it is, and the methods that take over.

    compare: for a mode (training or not), pairs of what the module's own forward and the methods give, with what the
    difference may come from."""

    detail: str
    methods: tuple[Method, ...]
    compare: Callable[[bool], list["Pair"]]
    weighs: bool = True  # compare reads the weights of the last method's owner


@dataclass(frozen=True)
class Pair:
    """old and new differ by `roundings` to `dtype` (their own), and by the order of sums of `terms` products in f32."""

    old: torch.Tensor
    new: torch.Tensor
    roundings: int
    terms: int
    dtype: torch.dtype | None = None

    def difference(self) -> str | None:
        """What is beyond the bound, as a sentence. Roundings are independent: n of them add up to sqrt(n) / 2 eps of
        the norm; 6 times that is beyond chance."""
        old, new = self.old, self.new
        if not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
            return f"it gives a {type(new).__name__}, stock a {type(old).__name__}"
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            return f"it gives {new.dtype} {list(new.shape)}, stock {old.dtype} {list(old.shape)}"
        if not self.roundings:
            return None if torch.equal(old, new) else "its bits are not those of stock"
        u = max(torch.finfo(self.dtype or old.dtype).eps / 2, _factors(old.device))
        share = 6 * (self.roundings**0.5 * u + self.terms**0.5 * 2**-24)
        old, new = old.double(), new.double()
        difference, bound = (new - old).norm().item(), share * old.norm().item()
        return None if difference <= bound else f"it is {difference:.3g} from stock, must be {bound:.3g} or less"


def _factors(device: torch.device) -> float:
    """The rounding of the factors of a matrix product of f32 there: torch may be told to multiply in tf32 or bf16."""
    backend = torch.backends.mkldnn if device.type == "cpu" else torch.backends.cuda
    chosen = {getattr(place, "fp32_precision", "none") for place in (backend.matmul, backend, torch.backends)}
    chosen |= {"tf32"} if device.type == "npu" else set()
    return 2.0**-8 if "bf16" in chosen else 2.0**-11 if "tf32" in chosen else 0.0


@dataclass(frozen=True)
class Left:
    """A structure that looks like one of Tigon's and is not, or not one that can be replaced."""

    reason: str


def few(names: list[str]) -> str:
    """Names for a sentence: the first three."""
    return ", ".join(names[:3] + [f"{len(names) - 3} more"] * (len(names) > 3))


def restore(module: nn.Module) -> None:
    """Takes back every method that `Method.install` put into the module."""
    for name, value in list(vars(module).items()):
        if not getattr(getattr(value, "__func__", None), "of_tigon", False):
            continue
        if name == "_old_forward":
            module._old_forward = types.MethodType(type(module).forward, module)
        else:
            delattr(module, name)


def computable(x: torch.Tensor, *parameters: torch.Tensor | None) -> bool:
    """Whether Tigon takes x, and parameters that are f32 or as x; where not, the module's own forward runs."""
    if is_distributed(x):
        _sharding.register()
    return (
        x.dtype in DTYPES
        and x.device.type in _DEVICES
        and x.stride(-1) == 1
        and all(p is None or p.dtype in (x.dtype, torch.float32) for p in parameters)
    )


def is_distributed(x: torch.Tensor) -> bool:
    """Whether x is a DTensor, whose import is slow."""
    return hasattr(x, "placements")
