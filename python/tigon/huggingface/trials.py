"""Trials: a stranger's forward runs on numbers made for it, on a twin of its module. No hook runs.

The random state is put back."""

import contextlib
import copy
import functools
import random
import re
import threading
import types
import warnings
from collections import OrderedDict

import torch
from torch import nn

from .replacement import Pair

_PLAIN = (int, float, complex, str, bool, bytes, type(None))
_OF_EVERY_MODULE = {*vars(nn.Module())}


class _Known(threading.local):
    """In one patch, (detector, module as _identity sees it): verdict."""

    def __init__(self):
        self.verdicts = {}


_known = _Known()


def once(recognise):
    """A detector that tries one of several modules with the same class, attributes, shapes and children.

    recognise gives a Left, None, or what makes the Replacement of a module."""

    @functools.wraps(recognise)
    def find(module):
        key, verdicts = (recognise, _identity(module)), _known.verdicts
        if key not in verdicts:
            verdicts[key] = recognise(module)
        return verdicts[key](module) if callable(verdicts[key]) else verdicts[key]

    return find


def _identity(module: nn.Module) -> tuple:
    """Equal for modules that compute the same, but for the values of parameters. A buffer is equal to itself alone."""
    own = [(n, v if _is_plain(v) else id(v)) for n, v in vars(module).items() if n not in _OF_EVERY_MODULE]
    tensors = [
        (name, None if tensor is None else (type(tensor), tuple(tensor.shape), tensor.dtype))
        for name, tensor in module._parameters.items()
    ]
    tensors += [(name, id(buffer)) for name, buffer in module._buffers.items()]
    children = [(name, None if child is None else _identity(child)) for name, child in module._modules.items()]
    return type(module), tuple(own), tuple(tensors), tuple(children)


def _is_plain(value) -> bool:
    return type(value) in _PLAIN or (isinstance(value, tuple) and all(map(_is_plain, value)))


class Differs(Exception):
    """What a trial saw that the replacement does not compute, as a sentence."""


class Unrunnable(Exception):
    """Why the module's own forward does not run, which leaves nothing to compare with."""


@contextlib.contextmanager
def quiet(model: nn.Module):
    """Around all trials of one patch: f32, no autocast, no gradients, and the random states are put back.

    from_pretrained patches under a default device (meta) and a default dtype of its own."""
    devices = {t.device for t in (*model.parameters(), *model.buffers()) if t.device.type in ("cuda", "npu")}
    kinds = {device.type for device in devices}
    dtype, state = torch.get_default_dtype(), random.getstate()
    with contextlib.ExitStack() as stack:
        for kind in sorted(kinds):
            indices = sorted(device.index for device in devices if device.type == kind)
            stack.enter_context(torch.random.fork_rng(indices, device_type=kind))
        stack.enter_context(torch.random.fork_rng(devices=[]))
        for kind in sorted(kinds | {"cpu"}):
            stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch.device("cpu"))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        torch.set_default_dtype(torch.float32)
        _known.verdicts.clear()
        try:
            yield
        finally:
            _known.verdicts.clear()
            torch.set_default_dtype(dtype)
            random.setstate(state)


def generator(seed: int) -> torch.Generator:
    """Numbers for one trial. The CPU's own generator, which dropout uses, starts from the same seed."""
    torch.default_generator.manual_seed(seed)
    return torch.Generator().manual_seed(seed)


def seed(number: int, device: torch.device) -> None:
    """For one device alone: the states of others may not have been kept."""
    generator(number)
    if device.type != "cpu":
        backend = getattr(torch, device.type)
        with backend.device(device):
            backend.manual_seed(number)


def twin(module: nn.Module, training: bool, children=None, parameters=None) -> nn.Module:
    """The module again, with the same parameters, in that mode: without hooks, with buffers and containers of its own.

    children, parameters: what is in their place, by name."""
    made = object.__new__(type(module))
    own = vars(made)
    for name, value in vars(module).items():
        if re.fullmatch("_(forward|backward)(_pre)?_hooks.*", name):
            value = OrderedDict()
        elif isinstance(value, types.MethodType) and value.__self__ is module:
            value = types.MethodType(value.__func__, made)
        elif type(value) in (list, dict, set):
            value = copy.copy(value)
        own[name] = value
    if "_hf_hook" in own:  # belongs to accelerate, whose forward belongs to the module itself
        own.pop("forward", None)
    children = children or {}
    own["training"] = training
    own["_parameters"] = {**module._parameters, **(parameters or {})}
    own["_buffers"] = {name: None if b is None else b.clone() for name, b in module._buffers.items()}
    own["_modules"] = {
        name: children.get(name) if name in children or child is None else twin(child, training)
        for name, child in module._modules.items()
    }
    return made


class Given(nn.Module):
    """A child whose answer is known. Other attributes are those of the module in whose place it is."""

    def __init__(self, answer, place: nn.Module | None = None):
        super().__init__()
        self.answer, self.place = answer, (place,)  # a tuple, so that it is no child

    def forward(self, *args, **kwargs):
        return self.answer(*args, **kwargs) if callable(self.answer) else self.answer

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            if self.place[0] is None:
                raise
            return getattr(self.place[0], name)


def run(module: nn.Module, *args, training=False, children=None, parameters=None, **kwargs):
    """What the module's own forward gives, on a twin. Differs if it writes into the module or into its inputs."""
    made = twin(module, training, children, parameters)
    before = list(_state(made))
    versions = [(x, x._version) for x in args if isinstance(x, torch.Tensor)]
    result = type(module).forward(made, *args, **kwargs)
    if any(x._version != version for x, version in versions):
        raise Differs("its forward writes into its input")
    for place, name, value, mark in before:
        if name not in place or not _is(place[name], value) or _mark(place[name]) != mark:
            raise Differs(f"its forward changes its {name}")
    if len(list(_state(made))) != len(before):
        raise Differs("its forward adds attributes to it")
    return result


def _state(module: nn.Module):
    """Every attribute, buffer and parameter below the module, except those of stand-ins."""
    for part in module.modules():
        if not isinstance(part, Given):
            for place in (vars(part), part._buffers, part._parameters):
                for name, value in place.items():
                    yield place, name, value, _mark(value)


def _is(a, b) -> bool:
    return a is b or (type(a) is type(b) and type(a) in _PLAIN and a == b)


def _mark(value):
    if isinstance(value, torch.Tensor):
        return None if value.is_inference() else value._version
    return len(value) if type(value) in (list, dict, set) else None


def compare_rows(module: nn.Module, forward, shape, roundings: int, terms: int, draw=torch.randn, inputs=1):
    """Replacement.compare of a module that takes one tensor of that shape, or as many as `inputs`."""

    def compare(training: bool) -> list[Pair]:
        weight = next(module.parameters(), torch.empty(0))
        numbers = generator(0)
        given = [draw(shape, generator=numbers) for _ in range(inputs)]
        x, *more = (t.to(weight.device, weight.dtype if t.is_floating_point() else t.dtype) for t in given)
        seed(0, x.device)
        try:
            old = type(module).forward(twin(module, training), x.clone(), *more)
        except Exception as error:  # whatever a stranger's forward raises
            raise Unrunnable(
                f"its own forward raises {type(error).__name__} on rows {list(x.shape)}: {error}"
            ) from None
        seed(0, x.device)
        return [Pair(old, forward(twin(module, training), x.clone(), *more), roundings, terms)]

    return compare


def gradients(outputs, inputs, upstream) -> list[torch.Tensor | None]:
    """Gradients of `outputs`, as torch.autograd.grad gives them; None where there is none."""
    pairs = [(y, up) for y, up in zip(outputs, upstream) if y.requires_grad]
    if not pairs:
        return [None for _ in inputs]
    outputs, upstream = zip(*pairs)
    return list(torch.autograd.grad(outputs, inputs, upstream, allow_unused=True))


def close(got, want, rtol: float, atol=0.0) -> bool:
    """Whether both are tensors of one shape and dtype, equal or within the bound. NaN is equal to NaN."""
    if not isinstance(want, torch.Tensor) or (got.shape, got.dtype) != (want.shape, want.dtype):
        return False
    a, b = got.double(), want.double()
    return bool((((a - b).abs() <= rtol * b.abs() + atol) | (a == b) | (a.isnan() & b.isnan())).all())
